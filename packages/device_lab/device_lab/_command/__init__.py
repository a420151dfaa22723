"""What `device-lab train.py` is made of."""
