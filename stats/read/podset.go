package read

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// podSet is the pods of the hierarchy, with what is kept of each between looks. Listing them again
// costs no allocation while they stay the same.
type podSet struct {
	fs        *cgroup.FS
	roots     []*podRoot
	elsewhere map[string]*podGroup // by UID: pods that only the runtime knows
	here      map[string]*podGroup // by UID: those found below a root
	order     []*podGroup          // all, by UID
	round     uint64               // of what was listed
	changed   bool                 // since order was made
	names     []byte               // scratch: directory entries
	beside    *beside              // lists and opens
	turn      uint64               // of join
}

// podRoot is a cgroup whose children are pods.
type podRoot struct {
	path    string
	groups  map[string]*podGroup // by name of the directory; those that are no pod's have no UID
	present int                  // groups seen in this round
}

// podGroup is one pod's cgroup.
type podGroup struct {
	stats.PodCgroup
	parent string        // of a pod elsewhere: what the runtime called its cgroup
	group  *cgroup.Group // nil: not open
	round  uint64        // that saw it last; of a pod elsewhere: the turn
	gone   bool          // it is in no list any more

	// What the lister does for it. A look is beside's.
	tried uint64 // look that had it opened last
	err   error  // of that
	// it was open, and its cgroup was removed: it is hardly there under the same name again
	vanished bool
	wanted   bool   // its processes are to be asked
	asked    uint64 // look that had them asked last
	critical bool   // what they said
	answered bool   // they have been asked
	// when it began to want something that has not been done; zero: it wants nothing
	since time.Time

	usage      usageSample
	containers map[string]usageSample // by name of the cgroup
	taken      []taken                // of memory, at the last full look
	beside     uint64                 // and by none of the containers
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

func newPodSet(fs *cgroup.FS, proc *procfs.Proc, roots []string) *podSet {
	s := &podSet{
		fs: fs, elsewhere: map[string]*podGroup{}, here: map[string]*podGroup{},
		names:  make([]byte, 32<<10),
		beside: newBeside(newLister(fs, proc, roots)),
	}
	for _, r := range roots {
		s.roots = append(s.roots, &podRoot{path: r, groups: map[string]*podGroup{}})
	}
	return s
}

func (s *podSet) close() {
	s.beside.close(s)
	for _, r := range s.roots {
		for _, g := range r.groups {
			g.close()
		}
	}
	for _, g := range s.elsewhere {
		g.close()
	}
}

// close gives its descriptors back. It is opened anew by who needs it.
func (g *podGroup) close() {
	if g.group != nil {
		g.group.Close()
		g.group = nil
	}
	g.tried, g.asked, g.critical, g.answered, g.since = 0, 0, false, false, time.Time{}
}

// forget is close for one that is in no list any more, whatever is still done for it.
func (g *podGroup) forget() {
	g.gone = true
	g.close()
}

// discover finds the pods that are there now, and opens those that are not open.
func (s *podSet) discover(pods podindex.Index) error { return s.find(pods, true) }

// find is discover; patient: a victim may be chosen by what is found.
func (s *podSet) find(pods podindex.Index, patient bool) error {
	s.beside.begin(patient)
	err := s.beside.list(s)
	s.join(pods)
	s.beside.finish(s)
	return err
}

// join adds the pods that only the runtime knows to those that were listed.
func (s *podSet) join(pods podindex.Index) {
	s.turn++
	for uid, p := range pods {
		if g := s.here[uid]; (g == nil || g.round != s.round) && p.Ready() {
			s.outside(uid, p)
		}
	}
	for uid, g := range s.elsewhere {
		if g.round != s.turn {
			g.forget()
			delete(s.elsewhere, uid)
			s.changed = true
		}
	}
	if s.changed {
		s.sort()
	}
}

// relist takes what lies in a root: names, each with a 0 behind it.
func (s *podSet) relist(r *podRoot, names []byte) {
	r.present = 0
	for len(names) > 0 {
		end := bytes.IndexByte(names, 0)
		s.found(r, names[:end])
		names = names[end+1:]
	}
	s.drop(r)
}

// found takes one directory below a root.
func (s *podSet) found(r *podRoot, name []byte) {
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
		g.forget()
		delete(r.groups, name)
		s.changed = true
	}
}

// outside takes a pod that was not found where pods are looked for. The cgroup that the runtime
// names counts only if its name is this very pod's: a sandbox made without a cgroup of its own lies
// in one that it shares with others (containerd's /k8s.io, a system.slice), and killing that one
// would kill them all. Without a cgroup the pod is unmeasured.
func (s *podSet) outside(uid string, p *podindex.Pod) {
	g := s.elsewhere[uid]
	if g == nil || g.parent != p.Cgroup {
		if g != nil {
			g.forget()
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
	g.round = s.turn
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
	slices.SortFunc(s.order, func(a, b *podGroup) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Path, b.Path))
	})
}

// reindex finds pods by UID. One found below two roots (a leftover of the other driver, or of
// another class) is in the order once for each of its cgroups.
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
	*p = stats.PodStats{PodRef: stats.PodReference{UID: g.UID}, Cgroup: g.Path, QOSClass: g.QOSClass,
		Containers: containers}
	p.EphemeralStorage.Volumes = volumes
}
