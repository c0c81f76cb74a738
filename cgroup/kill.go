package cgroup

// Kill sends SIGKILL to every process of the group and of all groups below it, forks in flight included: cgroup.kill
// (since v5.14). It returns when the signals are sent, not when the processes are gone: see WaitEmpty. os.ErrNotExist: the
// kernel has no cgroup.kill; EOPNOTSUPP: the group is threaded; ErrVanished: there is nothing left to kill.
func (g *Group) Kill() error { return g.write("cgroup.kill", "1") }
