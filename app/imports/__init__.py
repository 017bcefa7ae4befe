"""Moving in: a file of devices that users have already, brought under the limit."""
