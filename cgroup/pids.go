package cgroup

// PIDsMax reads pids.max: the number of tasks above which the group and its descendants cannot fork.
func (g *Group) PIDsMax(buf []byte) (Limit, error) { return g.readLimit("pids.max", buf) }

// PIDsCurrent reads pids.current: the number of tasks (threads) in the group and its
// descendants. The root cgroup has no pids files.
func (g *Group) PIDsCurrent(buf []byte) (uint64, error) {
	return g.numberKept(filePIDsCurrent, buf)
}
