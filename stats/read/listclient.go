package read

import (
	"errors"
	"time"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// To list a cgroup's directory, the kernel takes the directory's lock. A process that creates or
// removes a cgroup in that directory holds the lock while it allocates memory. A name lookup takes
// the lock too, and the rwsem of the whole hierarchy, under which the kernel allocates inodes
// (v6.12 fs/readdir.c iterate_dir, fs/kernfs/dir.c kernfs_iop_lookup, kernfs_iop_mkdir). Under
// pressure the lock is held as long as reclaim runs. Therefore a separate thread (lister) lists and
// opens cgroups for the loop, and the loop waits for that thread only within these limits. The loop
// itself only reads open files, which needs no lock that is held during an allocation.
const (
	// shortWait bounds a look's wait for the thread while the previous list is still valid. The
	// thread answers within 1 ms if nothing blocks it, even with 110 pods. The wait also lasts at
	// least minSlices: on a starved node, or after the hypervisor stole the CPU, 5 ms may pass before
	// the thread has run at all.
	shortWait = 5 * time.Millisecond
	waitSlice = time.Millisecond
	minSlices = 5

	// freshFor is the maximum age of a request for its answer about a pod's processes to count as
	// new. A list is as old as its request: it is new only if this look sent the request, because a
	// blocked request may be much older.
	freshFor = 100 * time.Millisecond

	// listValidFor is the age up to which a list is valid, so that a look does not wait longer for a
	// new one: one second from tick to tick (see Refresh), plus half a second for a late tick.
	listValidFor = 1500 * time.Millisecond

	// longWait bounds a look's wait if the list is no longer valid, or an existing pod cannot be
	// measured yet: choosing another pod as the victim would be worse. If memory fills at 1 GiB/s,
	// the wait costs a tenth of a GiB. A look waits that long for the list once in longWaitEvery, and
	// once for each pod, so that a lock that is never released does not delay every decision.
	longWait      = 100 * time.Millisecond
	longWaitEvery = time.Second
)

var (
	errListLate = errors.New(
		"list pods' cgroups: timed out, using the previous list (the kernel holds a lock while " +
			"memory is short)")
	errOpenLate = errors.New(
		"open pods' cgroups: timed out, new pods are not measured yet (the kernel holds a lock while " +
			"memory is short)")
	// errNotOpen: a pod's cgroup is not open yet, so this look does not measure the pod. The look
	// reports errOpenLate for all such pods.
	errNotOpen = errors.New("cgroup is not open yet")
)

// listClient is the Reader's side of a lister: it sends requests, waits and receives answers.
type listClient struct {
	lister     *lister
	inFlight   bool      // a request is in flight, and belongs to the lister
	listedAt   time.Time // when the last answered list was requested; zero: never
	err        error     // error of that list
	closed     bool
	timedOutAt time.Time // when a long wait for a list last timed out

	// State of this look.
	look        uint64
	lookStart   time.Time
	patient     bool
	requestWait time.Duration // wait for the request in flight
	lookWait    time.Duration // wait for all requests of this look
	slices      int           // of requestWait
	late        bool          // a cgroup was not opened or checked in time
	timer       *time.Timer
}

func newListClient(l *lister) *listClient {
	b := &listClient{lister: l, look: 1, timer: time.NewTimer(time.Hour)}
	b.timer.Stop()
	return b
}

// StartLister starts a thread for all name lookups, which the kernel may block. Looks wait some
// milliseconds for that thread (shortWait, longWait). Call it once; Close ends the thread.
func (c *Reader) StartLister() {
	c.processes.async = true
	c.pods.client.lister.start()
}

// Refresh lists pods and opens the files of new ones, so that little work is left when a resource
// is short. Call it once a second after StartLister: it waits for milliseconds at most. heldUp is
// true while the kernel blocks the lister; the caller should then postpone its own name lookups in
// cgroups.
func (c *Reader) Refresh(pods podindex.Index) (heldUp bool) {
	_ = c.pods.find(pods, false) // the next look reports the error
	return c.pods.client.inFlight
}

// DupCgroup duplicates the open handle of a pod's cgroup into out, which must be zero or closed, if
// the cgroup still exists. file is a duplicate of the handle of cgroup.kill; -1 if that is not
// open. The caller closes both. DupCgroup makes no name lookup and allocates nothing. ok is false
// if the cgroup is not open.
func (c *Reader) DupCgroup(p *stats.PodStats, out *cgroup.Group) (file int, ok bool) {
	for _, k := range c.pods.all {
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

func (b *listClient) begin(patient bool) {
	b.look++
	b.lookStart, b.patient, b.requestWait, b.lookWait, b.slices, b.late = time.Now(), patient, 0, 0, 0, false
}

// recent reports whether the lister thread runs and the list was requested within freshFor.
func (b *listClient) recent() bool {
	return b.lister.ended != nil && time.Since(b.listedAt) <= freshFor
}

// list requests a new list of the roots and waits for it. After a timeout the previous list stays
// in use.
func (b *listClient) list(s *podSet) error {
	for {
		if !b.inFlight {
			b.lister.req.list, b.lister.req.jobs = true, b.lister.req.jobs[:0]
			b.send()
		}
		limit := shortWait
		if now := time.Now(); b.patient && now.Sub(b.listedAt) > listValidFor &&
			now.Sub(b.timedOutAt) >= longWaitEvery {
			limit = longWait
		}
		if !b.await(s, limit) {
			if limit == longWait {
				b.timedOutAt = time.Now()
			}
			return errListLate
		}
		if !b.listedAt.Before(b.lookStart) {
			return b.err
		}
	}
}

// finish requests the opening and checking of cgroups that pods need, and waits for the answers.
func (b *listClient) finish(s *podSet) {
	for {
		limit, wanted := b.limit(s)
		switch {
		case !wanted:
			return
		case !b.inFlight:
			b.queueJobs(s)
			b.send()
		}
		if !b.await(s, limit) {
			b.late = true
			return
		}
	}
}

// limit returns how long this look may wait for the opening and checking of cgroups; wanted is
// false if no pod needs either.
func (b *listClient) limit(s *podSet) (limit time.Duration, wanted bool) {
	limit = shortWait
	var now time.Time
	for _, k := range s.all {
		if !b.needsOpen(k) && !b.needsCheck(k) {
			continue
		}
		if wanted = true; now.IsZero() {
			now = time.Now()
		}
		if k.waitingSince.IsZero() {
			k.waitingSince = now
		}
		if left := longWait - now.Sub(k.waitingSince); b.patient && left > 0 && !k.vanished && !k.checked {
			limit = max(limit, min(b.requestWait+left, longWait))
		}
	}
	return limit, wanted
}

// needsOpen reports whether this look must open the pod's cgroup.
func (b *listClient) needsOpen(k *podGroup) bool {
	return k.group == nil && k.Path != "" && k.openedLook != b.look
}

// needsCheck reports whether the lister must check the pod's processes.
func (b *listClient) needsCheck(k *podGroup) bool {
	return k.checkWanted && k.group != nil && k.checkedLook != b.look
}

func (b *listClient) queueJobs(s *podSet) {
	q := &b.lister.req
	q.list, q.jobs = false, q.jobs[:0]
	for _, k := range s.all {
		if opens := b.needsOpen(k); opens || b.needsCheck(k) {
			q.jobs = append(q.jobs, job{pod: k, path: k.Path, check: !opens})
		}
	}
}

// send passes the request to the lister.
func (b *listClient) send() {
	b.lister.req.sentAt, b.inFlight, b.requestWait, b.slices = time.Now(), true, 0, 0
	if b.lister.ended == nil {
		b.lister.answer()
		b.lister.answers <- struct{}{}
		return
	}
	b.lister.requests <- struct{}{}
}

// await waits for the answer and applies it. It returns false after a wait of limit and of at least
// minSlices, so that the lister's thread had a chance to run. All waits of a look together are
// limited to longWait: if the thread gets the lock repeatedly but slowly, each answer is in time,
// but their sum is not.
func (b *listClient) await(s *podSet, limit time.Duration) bool {
	for {
		select {
		case <-b.lister.answers:
			b.receive(s)
			return true
		default:
		}
		if b.requestWait >= limit && b.slices >= minSlices || b.lookWait >= longWait {
			return false
		}
		start := time.Now()
		b.timer.Reset(waitSlice)
		select {
		case <-b.lister.answers:
			b.addWait(start)
			b.receive(s)
			return true
		case <-b.timer.C:
			b.addWait(start)
			b.slices++
		}
	}
}

func (b *listClient) addWait(since time.Time) {
	d := time.Since(since)
	b.requestWait += d
	b.lookWait += d
}

// receive applies an answer. An opened cgroup is valid at any age. A list is as old as its request.
func (b *listClient) receive(s *podSet) {
	b.inFlight = false
	q := &b.lister.req
	b.timer.Stop()
	look := b.look
	if b.lookStart.Sub(q.sentAt) > freshFor {
		look = 0 // counts for no look, so the pods are checked again
	}
	for i := range q.jobs {
		j := &q.jobs[i]
		j.pod.apply(j, look)
		*j = job{}
	}
	q.jobs = q.jobs[:0]
	if !q.list {
		return
	}
	b.listedAt, b.err = q.sentAt, nil
	s.round++
	for i, r := range s.roots {
		names := &q.roots[i]
		if names.err != nil { // keep the previous pods of this root
			if b.err == nil {
				b.err = names.err
			}
			s.keepRoot(r)
			continue
		}
		s.relist(r, names.names)
	}
	if s.changed {
		s.reindex()
	}
}

// apply stores the result of a job. look is the look that the result counts for; 0: no look.
func (g *podGroup) apply(j *job, look uint64) {
	g.waitingSince = time.Time{}
	switch {
	case j.check:
		g.critical, g.checkedLook, g.checked = j.critical, look, true
	case g.gone || g.group != nil:
		if j.group != nil {
			j.group.Close()
		}
	default:
		g.group, g.err, g.openedLook, g.vanished = j.group, j.err, look, false
		g.usage = usageSample{}
		clear(g.containers)
	}
}

// open opens a pod's cgroup that is not open: the pod is new, or the cgroup vanished during
// this look and may have been created again.
func (s *podSet) open(k *podGroup) error {
	s.client.finish(s)
	switch {
	case k.group != nil:
		return nil
	case k.openedLook == s.client.look:
		return k.err
	}
	return errNotOpen
}

// critical reports whether a process of a pod has the oom_score_adj of critical pods. While the
// kernel blocks the check, the last result counts. A pod with a cgroup that is not open yet is
// treated as critical.
func (s *podSet) critical(k *podGroup) bool {
	if k.group == nil {
		return k.openedLook != s.client.look
	}
	k.checkWanted = true
	s.client.finish(s)
	k.checkWanted = false
	return k.critical
}

// close ends the lister. It hands a cgroup that the lister opened meanwhile to its pod, which
// closes it.
func (b *listClient) close(s *podSet) {
	if b.closed {
		return
	}
	b.closed = true
	b.lister.close()
	select {
	case <-b.lister.answers:
		b.receive(s)
	default:
	}
}
