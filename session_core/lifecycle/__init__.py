"""What an agent embeds: its cache, its turns, and what happens when sessions begin and end."""
