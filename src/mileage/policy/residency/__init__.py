"""Which LoRA adapters stay where they are quick to reach."""
