"""What stands behind the names of device_lab: not for others to import."""
