"""The daemon under a service manager: systemd's user instance or launchd."""
