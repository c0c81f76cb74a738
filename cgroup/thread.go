package cgroup

// RaiseThread gives the calling thread, which must be locked to its goroutine, a real-time priority, or where that is refused
// the best ordinary one. refused says what was not granted; raised is false where nothing was.
func RaiseThread() (raised bool, refused []error) { return raisePriority() }
