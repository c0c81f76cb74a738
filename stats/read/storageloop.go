package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"jettison/stats"
)

// storageLoop has a storageWalker measure all pods again and again, and keeps what it found.
type storageLoop struct {
	walker *storageWalker
	every  time.Duration // a pod's figures are renewed when they are older
	lazy   bool          // only on demand, in a hurry, or of pods that are measured often

	mu       sync.Mutex
	hurry    bool
	demanded time.Time       // figures from before that are renewed at once
	whole    time.Time       // and those of walks from before that which were cut off by one in the longest turn
	eager    map[string]bool // UIDs of pods that are measured often
	woken    chan struct{}   // one slot: something is due
	pods     map[string]*storage
	index    Index
	known    map[string]bool // UIDs of all pods there are to measure
	dirs     map[string]bool // of those that have a directory of their own, beside that of their logs
	listed   time.Time       // when the pods' directories were last listed; zero: never
	err      error           // of that
	began    time.Time       // start of the round under way; zero: none is
	round    time.Duration   // measuring all pods that were due took, the last time
	doing    string          // UID of the pod being walked; empty: none is
	since    time.Time       // that
	until    time.Time       // its turn ends
	hurried  bool            // it began in a hurry
	end      *time.Timer     // ends it; nil: none was begun
	settled  bool            // first is closed
	first    chan struct{}   // closed when every pod that was found at first is measured, or they cannot be listed
}

func newStorageLoop(w *storageWalker, every time.Duration) *storageLoop {
	return &storageLoop{walker: w, every: every, woken: make(chan struct{}, 1), pods: map[string]*storage{}, first: make(chan struct{})}
}

// A pod is walked for a turn at most, so that one with many files holds up no other for long. A walk that its turn's end cut off
// begins anew when all other pods that are due were measured since, in a turn twice as long, up to longestTurn: other pods wait for one of
// these at a time. Nor does it wait until no other is due: where a round of them takes longer than their figures may be old, one always is.
const (
	turn        = time.Minute
	longestTurn = 10 * time.Minute
)

// hurriedTurn is the first turn while a disk is short, and turn the longest then: victims are chosen by the figures of all pods.
const hurriedTurn = 5 * time.Second

// walkPatience is how long after the end of its turn a pod may be walked before it is called out: something hangs then.
const walkPatience = 30 * time.Second

// storageLimit is the age of the oldest figures that are shown, however long a round takes.
const storageLimit = time.Hour

// hurriedEvery is the age at which figures are renewed while a disk is short, eagerEvery that of pods with limits of their own.
const (
	hurriedEvery = 5 * time.Second
	eagerEvery   = 10 * time.Second
)

// demand has figures from before a time renewed at once.
func (l *storageLoop) demand(since time.Time) {
	l.mu.Lock()
	if since.After(l.demanded) {
		l.demanded = since
	}
	l.mu.Unlock()
	l.wake()
}

func (l *storageLoop) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// finish has pods whose walks from before a time were cut off walked again, in the longest turn. Nobody waits for that.
func (l *storageLoop) finish(since time.Time) {
	l.mu.Lock()
	later := since.After(l.whole)
	if later {
		l.whole = since
	}
	l.mu.Unlock()
	if later {
		l.wake()
	}
}

// fresh reports whether no figure of a pod is from before a time. One whose walk was cut off counts as it is.
func (l *storageLoop) fresh(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid := range l.known {
		if s := l.pods[uid]; s == nil || s.time.Before(since) && !s.cut {
			return false
		}
	}
	return !l.listed.IsZero()
}

// relist is how soon the loop looks for new pods while no figure is due.
const relist = 5 * time.Second

// relistLazy is the same where figures are wanted on demand only.
const relistLazy = time.Minute

// run measures until ctx ends. oneRound: until all pods are measured once.
func (l *storageLoop) run(ctx context.Context, oneRound bool) {
	for ctx.Err() == nil {
		found, err := l.walker.find()
		l.keep(found, err)
		if err == nil { // with a part of the directories only, good figures would make way for half ones
			next, due := l.oldest(found)
			l.count(next, due)
			if due {
				l.measure(ctx, next, found[next])
				continue
			}
		}
		l.settle()
		if oneRound {
			return
		}
		timer := time.NewTimer(l.rest())
		select {
		case <-timer.C:
		case <-l.woken:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// rest is how long to wait while no figure is due.
func (l *storageLoop) rest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lazy && !l.hurry && len(l.eager) == 0 {
		return relistLazy
	}
	return relist
}

// settle ends the first round.
func (l *storageLoop) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled {
		l.settled = true
		close(l.first)
	}
}

// keep forgets pods that are gone.
func (l *storageLoop) keep(found map[string]storageDirs, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err != nil {
		return
	}
	l.listed, l.known, l.dirs = time.Now(), map[string]bool{}, map[string]bool{}
	for uid, dirs := range found {
		if l.known[uid] = true; dirs.pod != "" {
			l.dirs[uid] = true
		}
	}
	for uid := range l.index {
		l.known[uid] = true
	}
	maps.DeleteFunc(l.walker.owners, func(_ project, uid string) bool { return !l.known[uid] })
	maps.DeleteFunc(l.pods, func(uid string, _ *storage) bool { return !l.known[uid] })
	if l.walker.unnamed != nil {
		l.walker.unnamed.forget(l.known)
	}
}

// oldest chooses the pod to measure next; not due: all figures are young enough. A pod that was never measured comes first, one
// whose walk was cut off after all others that were not measured since the last such walk.
func (l *storageLoop) oldest(found map[string]storageDirs) (uid string, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	limit, often := now.Add(-l.every), now.Add(-min(l.every, eagerEvery))
	if l.hurry {
		limit = now.Add(-min(l.every, hurriedEvery))
	}
	cutAt := l.cutAt()
	var at time.Time
	var place int // of the chosen one
	consider := func(u string) {
		var t time.Time
		cut := false
		if s := l.pods[u]; s != nil {
			cut = s.cut
			if !s.unannounced || l.index[u] == nil {
				t = s.time
			}
		}
		young := t.After(limit) || l.lazy && !l.hurry
		if l.eager[u] {
			young = t.After(limit) && t.After(often)
		}
		if young && !t.Before(l.demanded) && !(cut && t.Before(l.whole)) {
			return
		}
		comes := 0
		switch {
		case cut:
			comes = 1
		case !t.Before(cutAt):
			comes = 2
		}
		if c := cmp.Or(cmp.Compare(comes, place), t.Compare(at), cmp.Compare(u, uid)); !due || c < 0 {
			uid, at, place, due = u, t, comes, true
		}
	}
	for u := range found {
		consider(u)
	}
	for u := range l.index {
		if _, ok := found[u]; !ok {
			consider(u)
		}
	}
	return uid, due
}

// cutAt is when the last walk that was cut off ended; zero: there is none.
func (l *storageLoop) cutAt() (at time.Time) {
	for _, s := range l.pods {
		if end := s.time.Add(s.took); s.cut && end.After(at) {
			at = end
		}
	}
	return at
}

// count times rounds: one ends when nothing is due, or a pod is that was measured in it already.
func (l *storageLoop) count(next string, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := l.pods[next]
	switch again := due && s != nil && !s.time.Before(l.began); {
	case l.began.IsZero():
		if due {
			l.began = now
		}
	case !due:
		l.round, l.began = now.Sub(l.began), time.Time{}
	case again:
		l.round, l.began = now.Sub(l.began), now
	}
}

// errTurnOver ends a walk at the end of its turn.
var errTurnOver = errors.New("the turn is over")

// setHurry tells whether a disk is short. The turn under way becomes a first one of then, unless it began in a hurry: victims do not wait
// for more, and a disk that is short again after a moment is to cut off no walk that was given its time.
func (l *storageLoop) setHurry(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hurry = on; on && l.doing != "" && !l.hurried && l.until.Sub(l.since) > hurriedTurn {
		l.end.Reset(max(0, time.Until(l.since.Add(hurriedTurn))))
	}
}

// turnOf is how long the next turn of a pod may take, and whether files without a name are looked for in it: while a disk is short, and
// where figures are demanded, for it was found to be.
func (l *storageLoop) turnOf(before *storage) (long time.Duration, short bool) {
	first, longest := turn, longestTurn
	if l.hurry {
		first, longest = hurriedTurn, turn
	}
	if before == nil {
		return first, l.hurry || !l.demanded.IsZero()
	}
	switch {
	case before.cut && before.time.Before(l.whole):
		first = longest
	case before.cut:
		first = min(2*before.turn, longest)
	}
	return first, l.hurry || before.time.Before(l.demanded)
}

func (l *storageLoop) measure(ctx context.Context, uid string, dirs storageDirs) {
	short, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.mu.Lock()
	pod, before := l.index[uid], l.pods[uid]
	long, isShort := l.turnOf(before)
	began := time.Now()
	l.doing, l.since, l.until, l.hurried = uid, began, began.Add(long), l.hurry
	l.end = time.AfterFunc(long, func() { cancel(errTurnOver) })
	l.mu.Unlock()
	seen := l.walker.seen()
	s := l.walker.measure(short, uid, dirs, pod)
	s.took, s.turn = time.Since(began), long
	if s.err != nil && context.Cause(short) == errTurnOver {
		s.cut = true
		s.err = fmt.Errorf("pod %s: more than %d entries, walked for %v: not measured to its end",
			uid, l.walker.seen()-seen, s.took.Round(time.Second))
	}
	s.keep(before)
	if before != nil { // where it is not looked for, what was found stays, as old as it is
		s.unnamed = before.unnamed
	}
	if f := l.walker.unnamed; f != nil && isShort {
		last := s.unnamed
		s.unnamed = f.look(ctx, uid, pod, s.projects, &last)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end.Stop()
	l.doing = ""
	if ctx.Err() == nil {
		l.pods[uid] = s
	}
}

// limit is how old a figure may be: a few rounds. Where figures are wanted on demand only, demands are further apart than that, and a pod
// that is not walked within a few seconds would never have one.
func (l *storageLoop) limit(now time.Time) time.Duration {
	if l.lazy {
		return storageLimit
	}
	round := l.round
	if !l.began.IsZero() {
		round = max(round, now.Sub(l.began))
	}
	return min(storageLimit, max(5*l.every, 2*round))
}

// fill writes what is known of a pod's storage.
func (l *storageLoop) fill(now time.Time, p *stats.PodStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.pods[p.PodRef.UID]
	if s == nil || now.Sub(s.time) > l.limit(now) {
		return
	}
	st := &p.EphemeralStorage
	st.Volumes = append(st.Volumes[:0], s.volumes...)
	if !s.allLogs.Time.IsZero() {
		st.Logs = stats.Some(s.allLogs)
	}
	st.ExitedLayers, st.Files = s.beside()
	st.Cut = s.cut
	total, inMemory := s.sum()
	if st.Time = s.time; !total.Time.IsZero() {
		st.Time = total.Time
	}
	if !inMemory.Time.IsZero() && inMemory.Time.Before(st.Time) {
		st.Time = inMemory.Time
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if u, ok := s.layers[c.ID]; ok {
			c.Rootfs = stats.Some(u)
		}
		if u, ok := s.logs[c.Name]; ok {
			c.Logs = stats.Some(u)
		}
	}
	for id, u := range s.layers { // of one without a cgroup: it is not among them yet, or not any more
		if !slices.ContainsFunc(p.Containers, func(c stats.ContainerStats) bool { return c.ID == id }) {
			st.ExitedLayers.V.Merge(u)
			st.ExitedLayers.OK = true
		}
	}
	if !s.missing { // a sum with a part missing would be a lie
		st.UsedBytes, st.InodesUsed = stats.Some(total.Counted()), stats.Some(total.InodesUsed-total.KeptInodes)
		st.MemoryVolumesBytes = stats.Some(inMemory.UsedBytes)
		st.Partial = total.Partial
	}
}

// fillUnnamed writes what is known of a pod's files without a name, once the node's file systems are.
func (l *storageLoop) fillUnnamed(now time.Time, p *stats.PodStats, n *stats.NodeStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.pods[p.PodRef.UID]; s != nil && now.Sub(s.unnamed.time) <= l.limit(now) {
		u := &s.unnamed
		p.EphemeralStorage.Unnamed = stats.UnnamedStats{Node: u.on(n.Fs), Image: u.on(n.ImageFs), Container: u.on(n.ContainerFs)}
	}
}

// sum adds the parts up that limits know of, those in memory apart.
func (s *storage) sum() (total, inMemory stats.FsUsage) {
	total.Merge(s.allLogs)
	total.Merge(s.hosts)
	for _, v := range s.volumes {
		if v.Memory {
			inMemory.Merge(v.FsUsage)
		} else {
			total.Merge(v.FsUsage)
		}
	}
	for _, u := range s.layers {
		total.Merge(u)
	}
	return total, inMemory
}

// setPods tells which pods the runtime knows.
func (l *storageLoop) setPods(index Index) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index = index
}

// remains adds the UIDs of pods that are not among those on the node and whose directories are there still, as far as they were listed.
func (l *storageLoop) remains(out []string, pods []stats.PodStats) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid := range l.dirs {
		is := func(p stats.PodStats) bool { return p.PodRef.UID == uid }
		if l.index[uid] == nil && !slices.ContainsFunc(pods, is) {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

// status says how the walk as a whole stands.
func (l *storageLoop) status() stats.SourceStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if err == nil && l.listed.IsZero() {
		err = errors.New("the folders of pods are not listed yet: their file system may hang")
	}
	if now := time.Now(); l.doing != "" && now.Sub(l.until) > walkPatience {
		err = errors.Join(err, fmt.Errorf("pod %s has been walked for %v: a file system that hangs",
			l.doing, now.Sub(l.since).Round(time.Second)))
	}
	return stats.SourceStatus{Name: "disk usage of pods", Time: l.listed, Err: errors.Join(err, l.missing())}
}

// missing says how many pods' figures there are, unless all are: while the first round is under way, too. Of several errors it
// tells the one of the lowest UID, so that it stays the same from look to look.
func (l *storageLoop) missing() error {
	now := time.Now()
	measured, failed, old, first := 0, 0, 0, ""
	for uid := range l.known {
		s := l.pods[uid]
		switch {
		case s == nil:
		case s.err != nil:
			if failed++; first == "" || uid < first {
				first = uid
			}
		case now.Sub(s.time) > l.limit(now):
			old++
		default:
			measured++
		}
	}
	of := fmt.Sprintf("%d of %d pods measured", measured, len(l.known))
	switch {
	case failed > 0:
		return fmt.Errorf("%s, %d with errors: %w", of, failed, l.pods[first].err)
	case old > 0:
		return fmt.Errorf("%s, the figures of %d are too old", of, old)
	case len(l.known) > 0 && (measured == 0 || !l.settled):
		return fmt.Errorf("%s so far", of)
	}
	return nil
}
