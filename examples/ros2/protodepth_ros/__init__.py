"""Depth completion as a ROS 2 node: ``messages`` handles messages, ``node`` talks to rclpy."""
