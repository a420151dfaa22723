"""What a message of PyTorch means today, and what helps."""
