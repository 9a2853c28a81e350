"""What the server keeps and makes of replies: memory, averages, curvature."""
