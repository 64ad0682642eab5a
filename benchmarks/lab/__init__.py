"""What the measurements share: real servers, the operator and its partners as processes, ways to count and to judge."""
