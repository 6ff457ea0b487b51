"""Plan, apply, restore: what is wrong in a home, what may go, and the way back."""
