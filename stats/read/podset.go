package read

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"jettison/cgroup"
	"jettison/stats"
)

// podSet is the pods of the hierarchy, with what is kept of each between looks. Listing them again costs no allocation while
// they stay the same.
type podSet struct {
	fs        *cgroup.FS
	roots     []*podRoot
	elsewhere map[string]*podGroup // by UID: pods that only the runtime knows
	here      map[string]*podGroup // by UID: those found below a root
	order     []*podGroup          // all, by UID
	round     uint64               // of discover
	changed   bool                 // since order was made
	names     []byte               // scratch: directory entries
	root      *podRoot             // being listed
	visit     func(name []byte)    // listing it; here, for a closure would be allocated at each look
}

// podRoot is a cgroup whose children are pods.
type podRoot struct {
	path    string
	dir     *cgroup.Dir          // nil: not open
	groups  map[string]*podGroup // by name of the directory; those that are no pod's have no UID
	present int                  // groups seen in this round
}

// podGroup is one pod's cgroup.
type podGroup struct {
	stats.PodCgroup
	parent string        // of a pod elsewhere: what the runtime called its cgroup
	group  *cgroup.Group // nil: not open
	round  uint64        // that saw it last

	usage      usageSample
	containers map[string]usageSample // by name of the cgroup
}

// usageSample is CPU time used until an instant.
type usageSample struct {
	at   time.Time
	used time.Duration
}

// rate is the usage per second since the sample before, in billionths of a core.
func (s *usageSample) rate(now time.Time, used time.Duration) (out stats.Opt[uint64]) {
	if elapsed := now.Sub(s.at); !s.at.IsZero() && elapsed > 0 && used >= s.used {
		out = stats.Some(uint64(float64(used-s.used) / float64(elapsed) * 1e9))
	}
	*s = usageSample{now, used}
	return out
}

func newPodSet(fs *cgroup.FS, roots []string) *podSet {
	s := &podSet{fs: fs, elsewhere: map[string]*podGroup{}, here: map[string]*podGroup{}, names: make([]byte, 32<<10)}
	for _, r := range roots {
		s.roots = append(s.roots, &podRoot{path: r, groups: map[string]*podGroup{}})
	}
	s.visit = s.found
	return s
}

func (s *podSet) close() {
	for _, r := range s.roots {
		if r.dir != nil {
			r.dir.Close()
			r.dir = nil
		}
		for _, g := range r.groups {
			g.close()
		}
	}
	for _, g := range s.elsewhere {
		g.close()
	}
}

func (g *podGroup) close() {
	if g.group != nil {
		g.group.Close()
		g.group = nil
	}
}

// discover finds the pods that are there now.
func (s *podSet) discover(pods Index) error {
	s.round++
	var first error
	for _, r := range s.roots {
		if err := s.list(r); err != nil && first == nil {
			first = err // what was known of this root stays
			s.keep(r)
			continue
		}
		s.drop(r)
	}
	if s.changed {
		s.reindex()
	}
	for uid, p := range pods {
		if g := s.here[uid]; (g == nil || g.round != s.round) && p.Ready() {
			s.outside(uid, p)
		}
	}
	for uid, g := range s.elsewhere {
		if g.round != s.round {
			g.close()
			delete(s.elsewhere, uid)
			s.changed = true
		}
	}
	if s.changed {
		s.sort()
	}
	return first
}

// list goes through the directory of a root. One that does not exist has no pods.
func (s *podSet) list(r *podRoot) error {
	for try := 0; ; try++ {
		s.root, r.present = r, 0
		if r.dir == nil {
			dir, err := s.fs.OpenDir(r.path)
			if errors.Is(err, cgroup.ErrVanished) {
				return nil
			}
			if err != nil {
				return err
			}
			r.dir = dir
		}
		err := r.dir.Children(s.names, s.visit)
		if err == nil || !errors.Is(err, cgroup.ErrVanished) {
			return err
		}
		// Removed, and perhaps made anew under the same path.
		r.dir.Close()
		r.dir = nil
		if try > 0 {
			return nil
		}
	}
}

// found takes one directory below the root being listed.
func (s *podSet) found(name []byte) {
	r := s.root
	g := r.groups[string(name)]
	if g == nil {
		g = &podGroup{}
		if p, ok := stats.ParsePodCgroup(r.path, string(name)); ok {
			g.PodCgroup = p
		}
		r.groups[string(name)] = g
		s.changed = true
	}
	if g.round != s.round {
		g.round = s.round
		r.present++
	}
}

// keep takes over what was known of a root that cannot be listed.
func (s *podSet) keep(r *podRoot) {
	for _, g := range r.groups {
		g.round = s.round
	}
}

// drop forgets what is not below a root any more.
func (s *podSet) drop(r *podRoot) {
	if r.present == len(r.groups) {
		return
	}
	for name, g := range r.groups {
		if g.round == s.round {
			continue
		}
		g.close()
		delete(r.groups, name)
		s.changed = true
	}
}

// outside takes a pod that was not found where pods are looked for. The cgroup that the runtime names counts only if its name
// is this very pod's: a sandbox made without a cgroup of its own lies in one that it shares with others (containerd's
// /k8s.io, a system.slice), and killing that one would kill them all. Without a cgroup the pod is unmeasured.
func (s *podSet) outside(uid string, p *Pod) {
	g := s.elsewhere[uid]
	if g == nil || g.parent != p.Cgroup {
		if g != nil {
			g.close()
		}
		g = &podGroup{PodCgroup: stats.PodCgroup{UID: uid}, parent: p.Cgroup}
		if dir, base := path.Split(p.Cgroup); base != "" {
			if c, ok := stats.ParsePodCgroup(strings.Trim(dir, "/"), base); ok && c.UID == uid {
				g.PodCgroup = c
			}
		}
		s.elsewhere[uid] = g
		s.changed = true
	}
	g.round = s.round
}

func (s *podSet) sort() {
	s.order, s.changed = s.order[:0], false
	for _, r := range s.roots {
		for _, g := range r.groups {
			if g.UID != "" {
				s.order = append(s.order, g)
			}
		}
	}
	for _, g := range s.elsewhere {
		s.order = append(s.order, g)
	}
	slices.SortFunc(s.order, func(a, b *podGroup) int { return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Path, b.Path)) })
}

// reindex finds pods by UID. One found below two roots (a leftover of the other driver, or of another class) is in the order once
// for each of its cgroups.
func (s *podSet) reindex() {
	clear(s.here)
	for _, r := range s.roots {
		for _, g := range r.groups {
			if g.UID != "" {
				s.here[g.UID] = g
			}
		}
	}
}

// reset empties a pod's figures but for the memory that its lists take.
func (g *podGroup) reset(p *stats.PodStats) {
	containers, volumes := p.Containers[:0], p.EphemeralStorage.Volumes[:0]
	*p = stats.PodStats{PodRef: stats.PodReference{UID: g.UID}, Cgroup: g.Path, QOSClass: g.QOSClass, Containers: containers}
	p.EphemeralStorage.Volumes = volumes
}
