package cgroup

// PIDsCurrent reads pids.current: the number of tasks (threads) in the group and all below it. The
// root cgroup has none of the pids files.
func (g *Group) PIDsCurrent(buf []byte) (uint64, error) {
	return g.numberKept(filePIDsCurrent, buf)
}
