package deliver

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// maxVain bounds how many pods a pass asks for in vain of an API that answers a read.
const maxVain = 4

// vainly is the error of a pod's write that an API does not take which answers a read: by a webhook, or what stands before it. Or it takes
// no writes: it is asked as seldom as one that is away, and in turn, so that no pod keeps others waiting for good.
type vainly struct{ error }

func (v vainly) Unwrap() error { return v.error }

// statuses writes what is due to pods' statuses. An error: the API is away, or does not take all of them (vainly).
func (d *Deliverer) statuses(ctx context.Context) error {
	synced, ok := d.o.Pods.Synced()
	if !ok { // else every pod would seem gone
		return nil
	}
	read, err := d.probe(ctx)
	if err != nil {
		return err
	}
	var vain error
	tries, most := 0, maxVain
	if d.pause <= raceLast { // it is asked each second
		most = 1
	}
	for _, e := range d.inTurn() {
		if !d.due(e, time.Now()) {
			continue
		}
		err := d.settle(ctx, e, synced)
		switch {
		case err == nil:
			continue
		case kube.Unanswered(err), !read && d.readable(ctx, e.record.Pod) != nil:
			return err
		}
		read, vain = true, d.inVain(e, err)
		if tries++; tries == most {
			break
		}
	}
	return vain
}

// inTurn are the entries in the order of the records, but for those that were tried in vain: they come last, and of these the one that was
// so longest ago first.
func (d *Deliverer) inTurn() []*entry {
	all := slices.Clone(d.entries)
	slices.SortStableFunc(all, func(a, b *entry) int {
		return cmp.Or(a.vain.Compare(b.vain), a.patches.until.Compare(b.patches.until))
	})
	return all
}

// inVain has an entry be the last in turn, and left alone for as long as is asked for.
func (d *Deliverer) inVain(e *entry, err error) error {
	e.vain = time.Now()
	if asked, _ := kube.AskAgain(err); asked > 0 {
		e.patches.asked = e.vain.Add(asked)
		e.patches.until = e.patches.asked
	}
	d.complains(e, slog.LevelWarn, "the API answers, and does not take a pod's status: it is told again, after those of others", "write", err)
	return vainly{err}
}

// probe reads the first pod that is due, where the API took nothing before. read: it has answered.
func (d *Deliverer) probe(ctx context.Context) (read bool, err error) {
	now := time.Now()
	at := slices.IndexFunc(d.entries, func(e *entry) bool { return d.due(e, now) && e.record.Pod.Name != "" })
	if d.pause == 0 || at < 0 {
		return false, nil
	}
	if err := d.readable(ctx, d.entries[at].record.Pod); err != nil {
		return false, err
	}
	d.spoke = true
	return true, nil
}

// due tells that something may be due to a pod's status.
func (d *Deliverer) due(e *entry, now time.Time) bool {
	return !e.busy && !(e.status && e.final()) && !e.patches.waits(now) && !(e.slow && d.writing >= maxWriting)
}

// rounds bounds how often one entry is judged anew within a pass.
const rounds = 6

// settle does what is due for one entry until nothing is.
func (d *Deliverer) settle(ctx context.Context, e *entry, synced time.Time) error {
	for range rounds {
		again, err := d.step(ctx, e, synced)
		if err != nil || !again {
			return err
		}
	}
	e.patches.failed(time.Now(), lastPause, 0) // whoever changes the pod so fast is let through
	return nil
}

// step does one thing. again: there may be another one.
func (d *Deliverer) step(ctx context.Context, e *entry, synced time.Time) (again bool, err error) {
	now, r := time.Now(), e.record
	pod := e.current(d.o.Pods.Pod(r.Pod.Namespace, r.Pod.Name))
	if pod == nil && !e.gone && !old(r.Began.Time, synced) {
		return d.fetch(ctx, e)
	}
	v := verdict.Judge(now, r, pod, e.wrote)
	e.told = v
	if e.unsure && v.Act <= verdict.Held { // nothing is to be written to what the watch has, which may be behind that
		return d.fetch(ctx, e)
	}
	switch v.Act {
	case verdict.Over:
		d.done(e, v)
		return false, nil
	case verdict.Held:
		if e.held.IsZero() {
			e.held = now
		}
		e.status = now.Sub(e.held) >= HoldFor
		return false, nil
	case verdict.Wait:
		e.held = time.Time{}
		return false, nil
	}
	if !d.status { // nor is what a bridge before this one has begun brought to an end
		e.status = v.Act != verdict.Mark || e.final() // what becomes of one that is chosen is to be told
		return false, nil
	}
	return d.write(ctx, e, v, pod)
}

// settled is how long after it began an eviction's pod is certainly known to a list of all pods of the node, however far behind the API
// server's cache was that made it.
const settled = 5 * time.Minute

// old tells that a pod which is not in the copy is gone for certain.
func old(began, synced time.Time) bool { return !began.IsZero() && synced.Sub(began) > settled }

// fetch asks the API for the pod itself. again: it has answered.
func (d *Deliverer) fetch(ctx context.Context, e *entry) (again bool, err error) {
	r := e.record
	if r.Pod.Name == "" { // the agent did not know it, so nobody can be asked
		e.gone, e.unsure = true, false
		return true, nil
	}
	pod, err := d.o.API.Pod(ctx, r.Pod.Namespace, r.Pod.Name)
	d.spoke = d.spoke || kube.Means(err) != kube.Away
	switch kube.Means(err) {
	case kube.None:
		e.last, e.gone, e.unsure = pod, pod == nil, false
		return true, nil
	case kube.NotFound:
		e.gone, e.unsure = true, false
		return true, nil
	case kube.Refused:
		if e.patches.pause == refusedPause { // it is for good
			e.unsure = false
		}
		d.refused(e, "get", err)
		return false, nil
	case kube.Failing:
		d.failing(e, "get", err)
		return false, nil
	}
	return false, err
}

// write does an act.
func (d *Deliverer) write(ctx context.Context, e *entry, v verdict.Verdict, pod *v1.Pod) (again bool, err error) {
	now, r := time.Now(), e.record
	e.status = false // also where it was done with, and was taken back since
	mended, most := e.mending(pod)
	if v.Act == verdict.Mend {
		if e.held = (time.Time{}); *mended >= most {
			if e.status = true; !e.quit {
				e.quit = true
				d.o.Log.Error("the pod's status is taken back again and again: it stays as it is", append(d.fields(e), "reason", v.Why)...)
			}
			return false, nil
		}
	}
	return d.patch(ctx, e, verdict.Patch(now, v.Act, r, pod), func(ctx context.Context, is *v1.Pod, err error) (bool, error) {
		return d.answered(ctx, e, v, mended, is, err)
	})
}

// answered takes the answer to a write. again: there may be another thing to do.
func (d *Deliverer) answered(ctx context.Context, e *entry, v verdict.Verdict, mended *int, is *v1.Pod, err error) (again bool, _ error) {
	means := kube.Means(err)
	d.spoke = d.spoke || means != kube.Away
	e.unsure = e.unsure || means == kube.Away || means == kube.Failing // a server that lost its storage meanwhile says so, too
	switch means {
	case kube.None:
		e.last = is
		e.patches, e.vain, e.slow, e.unsure, e.complaint = retry{}, time.Time{}, false, false, ""
		if v.Act == verdict.Mend { // one that did not reach the API took nothing back
			*mended++
		}
		d.wrote(e, v)
		return true, nil
	case kube.Changed:
		if e.slow { // of whose rounds nobody keeps count
			e.patches.failed(time.Now(), lastPause, 0)
		}
		return d.fetch(ctx, e)
	case kube.NotFound:
		e.gone, e.unsure = true, false
		return true, nil
	case kube.Refused:
		d.refused(e, v.Act.String(), err)
		return false, nil
	case kube.Failing:
		d.failing(e, v.Act.String(), err)
		return false, nil
	}
	if e.slow && kube.Unanswered(err) {
		e.patches.failed(time.Now(), refusedPause, 0)
		d.complains(e, slog.LevelWarn, "the API takes too long for a pod's status: it is told again", v.Act.String(), err)
		return false, nil
	}
	return false, err
}

// wrote logs what was written.
func (d *Deliverer) wrote(e *entry, v verdict.Verdict) {
	switch v.Act {
	case verdict.Mend:
		mends := e.mends + e.reasons
		d.o.Log.Warn("the pod's status was mended", append(d.fields(e), "reason", v.Why, "mends", mends)...)
		if e.wrote = time.Now(); mends > 1 { // whoever takes it back is not fought with
			e.patches.until = e.wrote.Add(jittered(firstPause << min(mends, 5)))
		}
	case verdict.Fail:
		e.wrote = time.Now()
		d.o.Log.Info("the pod is failed", append(d.fields(e), "after", time.Since(e.record.EndBegan().Time))...)
	case verdict.Yield:
		d.o.Log.Info("the pod's kubelet is let have its word", append(d.fields(e), "reason", v.Why)...)
	case verdict.Mark:
		d.o.Log.Info("the pod is marked as about to be disrupted", d.fields(e)...)
	case verdict.Unmark:
		d.o.Log.Info("the pod is marked as not disrupted", append(d.fields(e), "reason", v.Why)...)
	}
}

// done notes that the pod's status needs nothing any more. While the agent has more to say, that may change.
func (d *Deliverer) done(e *entry, v verdict.Verdict) {
	if !e.status {
		d.o.Log.Debug("nothing is written to the pod's status", append(d.fields(e), "reason", v.Why)...)
	}
	e.status = true
}

// refused has an entry wait for a role or a policy that lets the bridge do it.
func (d *Deliverer) refused(e *entry, what string, err error) {
	e.patches.failed(time.Now(), refusedPause, 0)
	d.complains(e, slog.LevelError, "the API refuses what is to be told: it is told again", what, err)
}

// failing has an entry wait for an API that fails at its pod: it may be at this one alone, so others are not kept waiting.
func (d *Deliverer) failing(e *entry, what string, err error) {
	asked, _ := kube.AskAgain(err)
	longest := lastPause
	if e.slow { // it takes a place among those that are not waited for
		longest = refusedPause
	}
	e.patches.failed(time.Now(), longest, asked)
	d.complains(e, slog.LevelWarn, "the API fails to take a pod's status: it is told again", what, err)
}

// complains logs what keeps an entry waiting, when it begins to.
func (d *Deliverer) complains(e *entry, level slog.Level, what, act string, err error) {
	if e.complaint == what+act {
		level = slog.LevelDebug
	}
	e.complaint = what + act
	d.o.Log.Log(context.Background(), level, what, append(d.fields(e), "what", act, "error", err)...)
}

// fields are those of a line about an entry.
func (d *Deliverer) fields(e *entry) []any {
	return []any{"pod", e.record.Pod.Title(), "uid", e.record.Pod.UID, "record", e.record.ID}
}
