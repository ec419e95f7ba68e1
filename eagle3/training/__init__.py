"""Training an EAGLE-3 draft: prompts, data, draft vocabulary, losses, trainer."""
