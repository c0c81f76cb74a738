package read

import (
	"errors"
	"time"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// Listing a cgroup's directory takes its lock, which whoever makes or removes a cgroup in it holds
// while he allocates; to look a name up takes that lock too, and the rwsem of the whole hierarchy,
// under which the kernel makes inodes (v6.12 fs/readdir.c iterate_dir, fs/kernfs/dir.c
// kernfs_iop_lookup, kernfs_iop_mkdir). Under pressure that lasts as long as reclaim does. So the
// loop has a thread list and open (lister), and waits for it no longer than these bounds. What the
// loop reads itself are files that are open: that takes no lock which anybody holds while he
// allocates.
const (
	// brief is how long a look waits for the thread where what was listed before still counts. It
	// answers within 1 ms where nothing holds it up, 110 pods or not. The time counts only together
	// with leastTurns: on a node that is starved, or whose CPU was taken away by the hypervisor, 5 ms
	// are over before the thread has run at all.
	brief      = 5 * time.Millisecond
	waitTurn   = time.Millisecond
	leastTurns = 5

	// newEnough is the age of a question whose answer about a pod's processes counts as new. A list
	// counts as of when it was asked for, and is new only if the look itself has asked: one that was
	// held up may be of any time before.
	newEnough = 100 * time.Millisecond

	// counts is how old what was listed may be to count without a longer wait: a second from tick to
	// tick (see Refresh), and half of one for a tick that is late.
	counts = 1500 * time.Millisecond

	// longWait is how long a look waits where what was listed does not count, or a pod that is there
	// cannot be measured yet: to take another one for the victim is worse than that. At 1 GiB/s it
	// costs a tenth of a GiB. For the list that is done once in waitsEvery, for a pod once: a lock
	// that is never given back holds up no decision for good.
	longWait   = 100 * time.Millisecond
	waitsEvery = time.Second
)

var (
	errListLate = errors.New(
		"list pods' cgroups: no answer yet: the pods that were listed before count (the kernel holds a lock while " +
			"memory is short)")
	errOpenLate = errors.New(
		"open pods' cgroups: no answer yet: what is known of new pods counts (the kernel holds a lock while memory is " +
			"short)")
	// errNotOpen: a pod's cgroup is not open yet. It is not measured in this look; errOpenLate says so
	// for all of them.
	errNotOpen = errors.New("its cgroup is not open yet")
)

// beside is the Reader's side of a lister: it asks, waits and takes.
type beside struct {
	l      *lister
	under  bool      // a question is under way: it is the lister's
	listed time.Time // when what was listed was asked for; zero: never
	err    error     // of that
	closed bool
	vain   time.Time // when a long wait for a list was last in vain

	// Of this look.
	look    uint64
	began   time.Time
	patient bool
	spent   time.Duration // waiting for the question that is under way
	waited  time.Duration // for all questions of this look
	turns   int           // of it
	late    bool          // something was not opened or asked in time
	timer   *time.Timer
}

func newBeside(l *lister) *beside {
	b := &beside{l: l, look: 1, timer: time.NewTimer(time.Hour)}
	b.timer.Stop()
	return b
}

// Beside gives a thread to all that looks up names, which the kernel may hold up: looks wait for it
// some milliseconds, see the bounds. To be called once; Close ends it.
func (c *Reader) Beside() { c.pods.beside.l.start() }

// Refresh lists pods and opens the files of those that are new, so that little is left to do when
// something gets short. To be called once a second where Beside was: it waits for milliseconds at
// most. heldUp: the kernel holds it up at the moment, so that who looks up names in cgroups had
// better do it later.
func (c *Reader) Refresh(pods podindex.Index) (heldUp bool) {
	_ = c.pods.find(pods, false) // a look says what is wrong
	return c.pods.beside.under
}

// Held makes out, zero or closed, a second handle of a pod's cgroup that is open, as long as that
// is there, and file one of its cgroup.kill (-1: that is not open). Close both. It looks up no name
// and allocates nothing. ok is false if the very cgroup is not open.
func (c *Reader) Held(p *stats.PodStats, out *cgroup.Group) (file int, ok bool) {
	for _, k := range c.pods.order {
		if k.group == nil || k.Path != p.Cgroup || stats.CgroupID(k.group.ID()) != p.CgroupID {
			continue
		}
		if _, err := k.group.Events(c.buf); err != nil || k.group.DupInto(out) != nil {
			return -1, false
		}
		return k.group.DupKill(), true
	}
	return -1, false
}

func (b *beside) begin(patient bool) {
	b.look++
	b.began, b.patient, b.spent, b.waited, b.turns, b.late = time.Now(), patient, 0, 0, 0, false
}

// recent: what is listed was asked for a moment ago, by a thread.
func (b *beside) recent() bool { return b.l.ended != nil && time.Since(b.listed) <= newEnough }

// list has the roots listed, and waits for that. Where it takes too long what was listed before
// stays.
func (b *beside) list(s *podSet) error {
	for {
		if !b.under {
			b.l.q.list, b.l.q.jobs = true, b.l.q.jobs[:0]
			b.hand()
		}
		limit := brief
		if now := time.Now(); b.patient && now.Sub(b.listed) > counts && now.Sub(b.vain) >= waitsEvery {
			limit = longWait
		}
		if !b.await(s, limit) {
			if limit == longWait {
				b.vain = time.Now()
			}
			return errListLate
		}
		if !b.listed.Before(b.began) {
			return b.err
		}
	}
}

// finish has done for pods what they want, and waits for that.
func (b *beside) finish(s *podSet) {
	for {
		limit, wanted := b.limit(s)
		switch {
		case !wanted:
			return
		case !b.under:
			b.jobs(s)
			b.hand()
		}
		if !b.await(s, limit) {
			b.late = true
			return
		}
	}
}

// limit is how long this look may wait for what pods want; wanted is false if none wants anything.
func (b *beside) limit(s *podSet) (limit time.Duration, wanted bool) {
	limit = brief
	var now time.Time
	for _, k := range s.order {
		if !b.opens(k) && !b.asks(k) {
			continue
		}
		if wanted = true; now.IsZero() {
			now = time.Now()
		}
		if k.since.IsZero() {
			k.since = now
		}
		if left := longWait - now.Sub(k.since); b.patient && left > 0 && !k.vanished && !k.answered {
			limit = max(limit, min(b.spent+left, longWait))
		}
	}
	return limit, wanted
}

// opens: a pod's cgroup is to be opened in this look.
func (b *beside) opens(k *podGroup) bool {
	return k.group == nil && k.Path != "" && k.tried != b.look
}

// asks: its processes are to be asked.
func (b *beside) asks(k *podGroup) bool { return k.wanted && k.group != nil && k.asked != b.look }

func (b *beside) jobs(s *podSet) {
	q := &b.l.q
	q.list, q.jobs = false, q.jobs[:0]
	for _, k := range s.order {
		if opens := b.opens(k); opens || b.asks(k) {
			q.jobs = append(q.jobs, job{k: k, path: k.Path, asks: !opens})
		}
	}
}

// hand hands the question over.
func (b *beside) hand() {
	b.l.q.asked, b.under, b.spent, b.turns = time.Now(), true, 0, 0
	if b.l.ended == nil {
		b.l.answer()
		b.l.told <- struct{}{}
		return
	}
	b.l.ask <- struct{}{}
}

// await waits for the answer until this look has waited for it so long in all, and in so many turns
// that the thread would have had its own. It takes the answer. All waits of a look together end
// after longWait: where the thread gets the lock again and again, and slowly, each answer is in
// time and their sum is not.
func (b *beside) await(s *podSet, limit time.Duration) bool {
	for {
		select {
		case <-b.l.told:
			b.take(s)
			return true
		default:
		}
		if b.spent >= limit && b.turns >= leastTurns || b.waited >= longWait {
			return false
		}
		start := time.Now()
		b.timer.Reset(waitTurn)
		select {
		case <-b.l.told:
			b.passed(start)
			b.take(s)
			return true
		case <-b.timer.C:
			b.passed(start)
			b.turns++
		}
	}
}

func (b *beside) passed(since time.Time) {
	d := time.Since(since)
	b.spent += d
	b.waited += d
}

// take takes an answer. However old, a cgroup that was opened is the one that it is, and what was
// listed counts as of when it was asked for.
func (b *beside) take(s *podSet) {
	b.under = false
	q := &b.l.q
	b.timer.Stop()
	look := b.look
	if b.began.Sub(q.asked) > newEnough {
		look = 0 // it is asked anew
	}
	for i := range q.jobs {
		j := &q.jobs[i]
		j.k.told(j, look)
		*j = job{}
	}
	q.jobs = q.jobs[:0]
	if !q.list {
		return
	}
	b.listed, b.err = q.asked, nil
	s.round++
	for i, r := range s.roots {
		names := &q.roots[i]
		if names.err != nil { // what was known of this root stays
			if b.err == nil {
				b.err = names.err
			}
			s.keep(r)
			continue
		}
		s.relist(r, names.names)
	}
	if s.changed {
		s.reindex()
	}
}

// told takes what came of a job; look is the one that it counts for.
func (g *podGroup) told(j *job, look uint64) {
	g.since = time.Time{}
	switch {
	case j.asks:
		g.critical, g.asked, g.answered = j.critical, look, true
	case g.gone || g.group != nil:
		if j.group != nil {
			j.group.Close()
		}
	default:
		g.group, g.err, g.tried, g.vanished = j.group, j.err, look, false
		g.usage = usageSample{}
		clear(g.containers)
	}
}

// open has a pod's cgroup opened that is not: it is new, or vanished under this look and may have
// been made anew.
func (s *podSet) open(k *podGroup) error {
	s.beside.finish(s)
	switch {
	case k.group != nil:
		return nil
	case k.tried == s.beside.look:
		return k.err
	}
	return errNotOpen
}

// critical reports whether a process of a pod has said that it is: now, or where the kernel holds
// that up when they were asked last. A pod that is not open is spared: nothing is known of it.
func (s *podSet) critical(k *podGroup) bool {
	if k.group == nil {
		return k.tried != s.beside.look
	}
	k.wanted = true
	s.beside.finish(s)
	k.wanted = false
	return k.critical
}

// close ends the lister. What it has opened meanwhile is the pods'.
func (b *beside) close(s *podSet) {
	if b.closed {
		return
	}
	b.closed = true
	b.l.close()
	select {
	case <-b.l.told:
		b.take(s)
	default:
	}
}
