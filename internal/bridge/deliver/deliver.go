package deliver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// API is what of the cluster's is written and read.
type API interface {
	Pod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error)
	CreateEvent(ctx context.Context, e *v1.Event) error
}

// Pods is the copy of this node's pods.
type Pods interface {
	Pod(namespace, name string) *v1.Pod
	Synced() (at time.Time, ok bool)
	Again()
}

// Options of New.
type Options struct {
	Node    string
	Records Records
	Pods    Pods
	API     API
	// Status has the pods' status written, else there are events alone. It is asked once, when the copy of the pods is there or something is
	// to be written, and again after an error.
	Status func(context.Context) (bool, error)
	Log    *slog.Logger
}

// Bounds.
const (
	maxEntries = 4096 // records that are not over
	maxOver    = 4096 // IDs of those that are
)

// Deliverer is the loop.
type Deliverer struct {
	o       Options
	changed chan struct{} // one slot: the copy of the pods is another
	in      chan *api.RecordsLine
	late    chan func(ctx context.Context) // what to do about answers that were not waited for
	beside  sync.WaitGroup                 // who waits for them, and who follows the records

	status  bool // the pods' status is written, too
	decided bool // whether it is, is known
	listed  bool // the agent has told all that it had to say at the start
	entries []*entry
	over    []string    // oldest first
	lost    []*v1.Event // events that records are lost, not sent yet
	losses  retry       // of these
	gap     string      // name of the newest of these, sent or not
	pace    pacer
	sending bool      // an event is on its way
	quiet   retry     // of all events, while the API takes none
	mute    bool      // that it takes none was said
	writing int       // statuses that are on their way and not waited for
	spoke   bool      // the API has answered since heard was last told
	away    time.Time // nothing is asked before then
	asked   time.Time // nor before then, for the API has asked for that time
	failed  time.Time // when it was last asked in vain
	hurried int       // how often it was asked before its time since it is away
	pause   time.Duration
	said    bool // that the API is away
}

// New makes a Deliverer.
func New(o Options) *Deliverer {
	return &Deliverer{
		o: o, changed: make(chan struct{}, 1), in: make(chan *api.RecordsLine, 64), late: make(chan func(context.Context)),
		pace: pacer{left: eventBurst},
	}
}

// Changed tells that the copy of the pods is another. It may be called by anybody, and returns at once.
func (d *Deliverer) Changed() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// Run delivers until its context ends.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.beside.Wait()
	f := follower{records: d.o.Records, out: d.in, again: d.o.Pods.Again, log: d.o.Log, running: map[string]bool{}}
	d.beside.Go(func() { f.run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-d.in:
			d.take(l)
		case do := <-d.late:
			do(ctx)
		case <-d.changed:
			d.isBack()
		case <-timer.C:
		}
		for range len(d.in) { // what has come meanwhile: a pass may take seconds
			d.take(<-d.in)
		}
		timer.Reset(d.pass(ctx))
	}
}

// take takes what the agent tells.
func (d *Deliverer) take(l *api.RecordsLine) {
	if l.Gap != nil {
		d.takeGap(l.Gap)
	}
	d.listed = d.listed || l.Synced
	r := l.Record
	if r == nil {
		return
	}
	at, known := slices.BinarySearchFunc(d.entries, r.ID, func(e *entry, id string) int { return strings.Compare(e.record.ID, id) })
	switch {
	case known:
		d.entries[at].changes(r)
	case slices.Contains(d.over, r.ID):
	default:
		e := &entry{record: r, sent: map[string]bool{}}
		e.unsure = !d.listed && time.Since(r.Began.Time) < settled // a bridge before this one may have written what a list does not have yet
		d.entries = slices.Insert(d.entries, at, e)
		if len(d.entries) > maxEntries {
			d.o.Log.Error("too many evictions wait for the API: the oldest is given up", "record", d.entries[0].record.ID)
			d.entries = slices.Delete(d.entries, 0, 1)
		}
	}
}

// takeGap takes that records are missing. An agent tells that to each who asks: also to a follower that it has hung up on, and of records
// that were the oldest of a file that is full.
func (d *Deliverer) takeGap(g *api.RecordsGap) {
	event := verdict.Lost(time.Now(), d.o.Node, g)
	switch {
	case event == nil:
		d.o.Log.Debug("the agent has no older records of evictions", "record", g.Until, "reason", g.Reason)
	case event.Name != d.gap:
		d.o.Log.Error("records of evictions are lost: nothing can be said of them", "record", g.Until, "reason", g.Reason)
		d.lost, d.gap = append(d.lost, event), event.Name
	}
}

// isBack takes that the watch has something to say, so the API is there: it is asked at once, but not more often than it would be first,
// and less and less often where it takes nothing all the same.
func (d *Deliverer) isBack() {
	soon := later(d.asked, d.failed.Add(min(firstPause<<min(d.hurried, 10), lastPause)))
	if d.away.After(soon) {
		d.away = soon
		d.hurried++
	}
}

// later is the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// races tells that a pod waits to be told of which its kubelet says by itself that it has failed.
func (d *Deliverer) races() bool {
	return slices.ContainsFunc(d.entries, func(e *entry) bool {
		pod := e.current(d.o.Pods.Pod(e.record.Pod.Namespace, e.record.Pod.Name))
		return !e.status && pod != nil && e.record.Disruption && verdict.EndsByItself(pod)
	})
}

// idle is how long the loop waits where nothing is due.
const idle = time.Minute

// pass does all that is due, in the order of the records: first what pods' owners wait for, then the next event. It
// returns when more is due.
func (d *Deliverer) pass(ctx context.Context) time.Duration {
	now := time.Now()
	if d.pause > raceLast && d.races() { // since it was last heard from
		d.pause = raceLast
		d.away = later(d.asked, d.failed.Add(jittered(raceLast)))
	}
	if wait := d.away.Sub(now); wait > 0 {
		return wait
	}
	err := d.decide(ctx)
	if err == nil {
		err = d.statuses(ctx)
	}
	if ctx.Err() != nil {
		return idle
	}
	_, vain := errors.AsType[vainly](err)
	if d.heard(err); err == nil || vain {
		d.events(ctx)
	}
	d.forget()
	return d.next(now)
}

// decide asks once whether statuses are written: as soon as the API is there, so that the first eviction does not wait for it.
func (d *Deliverer) decide(ctx context.Context) error {
	if _, there := d.o.Pods.Synced(); d.decided || !there && len(d.entries) == 0 && len(d.lost) == 0 {
		return nil
	}
	status, err := d.o.Status(ctx)
	if err != nil {
		return err
	}
	d.status, d.decided, d.spoke = status, true, true
	return nil
}

// heard takes how a pass ended, or what a late answer was. An API that is away is asked again after a pause that doubles; one that was not
// asked, or has not answered, is no more there than before.
func (d *Deliverer) heard(err error) {
	spoke := d.spoke
	if d.spoke = false; err == nil && !spoke {
		return
	}
	_, vain := errors.AsType[vainly](err)
	if (err == nil || vain) && d.said {
		d.said = false
		d.o.Log.Info("the API takes what it is told again", "evictions", len(d.entries))
	}
	if err == nil {
		d.pause, d.hurried, d.away = 0, 0, time.Time{}
		if d.asked.After(time.Now()) { // by another answer than this one
			d.away = d.asked
		}
		return
	}
	longest := lastPause
	if d.races() {
		longest = raceLast
	}
	asked := time.Duration(0)
	if !vain { // else that was for the one pod
		asked, _ = kube.AskAgain(err)
	}
	d.pause = min(max(2*d.pause, firstPause), longest)
	d.failed = time.Now()
	d.asked = later(d.asked, d.failed.Add(asked))
	d.away = later(d.asked, d.failed.Add(jittered(d.pause)))
	if !vain && !d.said {
		d.said = true
		d.o.Log.Warn("the API is away: what it is to be told waits", "evictions", len(d.entries), "error", err)
	}
}

// forget drops what is over.
func (d *Deliverer) forget() {
	d.entries = slices.DeleteFunc(d.entries, func(e *entry) bool {
		done := e.status && e.final() && d.unsent(e) == nil
		if done {
			d.over = append(d.over, e.record.ID)
		}
		return done
	})
	d.over = d.over[max(0, len(d.over)-maxOver):]
}

// next is how long the loop may wait after a pass that began at some time.
func (d *Deliverer) next(began time.Time) time.Duration {
	wait, now := idle, time.Now()
	sooner := func(at time.Time) {
		if at.After(began) { // what was due before has been tried
			wait = min(wait, max(0, at.Sub(now)))
		}
	}
	sooner(d.away)
	for _, e := range d.entries {
		sooner(e.patches.until)
		sooner(e.events.until)
		sooner(e.told.At)
		if !e.held.IsZero() {
			sooner(e.held.Add(HoldFor))
		}
	}
	sooner(d.losses.until)
	sooner(d.quiet.until)
	sooner(d.pace.next)
	return wait
}
