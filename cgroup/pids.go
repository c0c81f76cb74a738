package cgroup

// PIDsCurrent reads pids.current: the number of tasks (threads) in the group and its
// descendants. The root cgroup has no pids files.
func (g *Group) PIDsCurrent(buf []byte) (uint64, error) {
	return g.numberKept(filePIDsCurrent, buf)
}
