"""Training: a pack of replicas of one shape, from seeds and windows to held-out losses."""
