"""Which LoRA adapters stay where they are quick to reach, and how long idle models stay loaded."""
