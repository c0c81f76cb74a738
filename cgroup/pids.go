package cgroup

// PIDsCurrent reads pids.current: the number of tasks (threads) in the group and all below it. The root cgroup has none of
// the pids files.
func (g *Group) PIDsCurrent(buf []byte) (uint64, error) { return g.numberKept(pidsCurrent, buf) }

// PIDsMax reads pids.max: the number of tasks beyond which fork fails.
func (g *Group) PIDsMax(buf []byte) (Limit, error) { return g.limit("pids.max", buf) }

// PIDsEvents reads pids.events: how often a fork failed because of pids.max (v6.12 kernel/cgroup/pids.c; of whose limit
// depends on the mount option pids_localevents).
func (g *Group) PIDsEvents(buf []byte) (max uint64, err error) {
	b, err := g.read("pids.events", buf)
	if err != nil {
		return 0, err
	}
	if max, err = parsePIDsEvents(b); err != nil {
		return 0, g.parseError("pids.events", err)
	}
	return max, nil
}

func parsePIDsEvents(b []byte) (max uint64, err error) {
	seen := false
	for len(b) > 0 {
		var key, value []byte
		if key, value, b = nextPair(b); string(key) == "max" {
			if err := store(&max, key, value); err != nil {
				return 0, err
			}
			seen = true
		}
	}
	if !seen {
		return 0, missing("max")
	}
	return max, nil
}
