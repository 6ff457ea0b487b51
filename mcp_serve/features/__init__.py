"""The features of the server besides its tools: resources, prompts, completions and skills."""
