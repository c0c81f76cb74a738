package cgroup

// Stat is cgroup.stat: how many groups there are below a group.
type Stat struct {
	Descendants      uint64 // alive
	DyingDescendants uint64 // removed, but something still refers to them: page cache, above all
}

// ParseStat reads cgroup.stat. Both numbers must be there; what v6.12 says of each controller is skipped.
func ParseStat(b []byte) (Stat, error) {
	var s Stat
	seen := 0
	for len(b) > 0 {
		var key, value []byte
		key, value, b = nextPair(b)
		var err error
		switch string(key) {
		case "nr_descendants":
			seen, err = seen|1, store(&s.Descendants, key, value)
		case "nr_dying_descendants":
			seen, err = seen|2, store(&s.DyingDescendants, key, value)
		}
		if err != nil {
			return Stat{}, err
		}
	}
	if seen != 3 {
		return Stat{}, missing("nr_descendants, nr_dying_descendants")
	}
	return s, nil
}

// Stat reads cgroup.stat. Every cgroup has it.
func (g *Group) Stat(buf []byte) (Stat, error) {
	b, err := g.read("cgroup.stat", buf)
	if err != nil {
		return Stat{}, err
	}
	s, err := ParseStat(b)
	if err != nil {
		return Stat{}, g.parseError("cgroup.stat", err)
	}
	return s, nil
}
