package deliver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/kube"
)

// unruly is an API server that is slow, fails, and may have performed failed requests, until a
// given time.
type unruly struct {
	*world
	until time.Time

	randomMu     sync.Mutex
	random       *rand.Rand
	failedWrites map[types.UID]int // writes that set a pod to Failed
	events       int               // event requests in flight
	peakEvents   int               // highest number of these
}

func (u *unruly) intn(n int) int {
	u.randomMu.Lock()
	defer u.randomMu.Unlock()
	return u.random.IntN(n)
}

// failure returns a random error that a client may see; done: the request was performed.
func (u *unruly) failure(done bool) error {
	all := []error{
		errors.New("connection reset"), context.DeadlineExceeded, status(503), status(500), apierrors.NewTooManyRequests("later", 1+u.intn(30)),
		status(403), status(422), status(409),
	}
	if done {
		all = all[:4]
	}
	return all[u.intn(len(all))]
}

// misbehave randomly waits up to a minute, fails, or does neither.
func (u *unruly) misbehave(ctx context.Context, done bool) error {
	if time.Now().After(u.until) {
		return ctx.Err()
	}
	if u.intn(3) == 0 {
		took := time.Duration(u.intn(60_000)) * time.Millisecond
		if u.intn(2) == 0 {
			took /= 20
		}
		if retry.Sleep(ctx, min(took, timeoutOf(ctx))); ctx.Err() != nil {
			return ctx.Err()
		}
		if took > timeoutOf(ctx) {
			return context.DeadlineExceeded
		}
	}
	if u.intn(3) == 0 {
		return u.failure(done)
	}
	return nil
}

func (u *unruly) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	if err := u.misbehave(ctx, false); err != nil {
		return nil, err
	}
	return u.world.Pod(context.Background(), namespace, name)
}

func (u *unruly) Node(ctx context.Context, name string) (*v1.Node, error) {
	if err := u.misbehave(ctx, false); err != nil {
		return nil, err
	}
	return u.world.Node(context.Background(), name)
}

func (u *unruly) PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	ctx = kube.WithWebhookTimeout(ctx) // as kube.Client
	if err := u.misbehave(ctx, false); err != nil {
		return nil, err
	}
	pod, err := u.world.PatchPodStatus(context.Background(), namespace, name, body)
	var written v1.Pod
	if wrong := json.Unmarshal(body, &written); wrong != nil {
		return nil, wrong
	}
	if err == nil && written.Status.Phase == v1.PodFailed {
		u.randomMu.Lock()
		u.failedWrites[written.UID]++
		u.randomMu.Unlock()
	}
	if late := u.misbehave(ctx, true); late != nil {
		return nil, late
	}
	return pod, err
}

func (u *unruly) CreateEvent(ctx context.Context, e *v1.Event) error {
	u.count(1)
	defer u.count(-1)
	if err := u.misbehave(ctx, false); err != nil {
		return err
	}
	if err := u.world.CreateEvent(context.Background(), e); err != nil {
		return err
	}
	return u.misbehave(ctx, true)
}

func (u *unruly) count(n int) {
	u.randomMu.Lock()
	defer u.randomMu.Unlock()
	u.events += n
	u.peakEvents = max(u.peakEvents, u.events)
}

// victim is a pod of an eviction.
type victim struct {
	pod        *v1.Pod
	record     string
	abandoned  bool // its eviction is abandoned
	runReports int  // events that reported it as running before it died
}

// evict sends the records of an eviction, complete or in steps. The last step may abandon it.
func (u *unruly) evict(p *v1.Pod) *victim {
	out := &victim{pod: p}
	if u.intn(3) > 0 {
		out.record = u.addEviction(p).ID
		return out
	}
	end := *record(p, time.Now())
	end.ID = fmt.Sprintf("%s-%04x", end.ID, len(u.records))
	chosen := end
	chosen.Outcome, chosen.Complete, chosen.Killed, chosen.Emptied, chosen.Cleaned = api.OutcomeRunning, false, api.Stamp{}, api.Stamp{}, api.Stamp{}
	if out.abandoned = u.intn(4) == 0; out.abandoned {
		end.Outcome, end.Killed, end.Emptied, end.Cleaned = api.OutcomeAbandoned, api.Stamp{}, api.Stamp{}, api.Stamp{}
	}
	u.set(func() { u.records = append(u.records, &chosen) })
	time.Sleep(time.Duration(u.intn(30_000)) * time.Millisecond)
	if !out.abandoned && u.intn(2) == 0 {
		out.runReports = 1
		undying := chosen
		undying.Outcome = api.OutcomeUndying
		u.updateRecord(&undying)
		time.Sleep(time.Duration(u.intn(60_000)) * time.Millisecond)
		dead := emptied(undying)
		u.updateRecord(&dead)
		time.Sleep(time.Duration(u.intn(3_000)) * time.Millisecond)
		end.Emptied, end.Cleaned = dead.Emptied, dead.Cleaned
	}
	u.updateRecord(&end)
	out.record = end.ID
	return out
}

// lagWatch makes the watch stay behind for up to ten seconds, or catch up.
func (u *unruly) lagWatch() {
	u.set(func() {
		if u.watchedPods != nil || u.intn(2) == 0 {
			u.watchedPods = nil
			return
		}
		u.watchedPods = maps.Clone(u.pods)
	})
	time.Sleep(time.Duration(u.intn(10_000)) * time.Millisecond)
}

// replace deletes a pod or replaces it with another of the same name.
func (u *unruly) replace(p *v1.Pod) {
	u.set(func() {
		delete(u.pods, p.Name)
		if u.intn(2) == 0 {
			other := p.DeepCopy()
			other.UID += "-another"
			other.Status.Phase, other.Annotations = v1.PodRunning, nil
			u.storePod(other)
		}
	})
}

// The API server misbehaves for half an hour while pods are evicted, abandoned, replaced and
// deleted, and bridges restart. Afterwards each existing victim is Failed, by its record and once,
// no other pod is, each has its event, and no request is in flight.
func TestRandomFailures(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() { // the race detector of Go 1.26 may crash in virtual time, see golang.org/issue/78156
		seeds = 15
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := &world{updated: make(chan struct{}), pods: map[string]*v1.Pod{}, events: map[string]*v1.Event{}}
			u := &unruly{
				world: w, until: time.Now().Add(30 * time.Minute), random: rand.New(rand.NewPCG(seed, 1)), failedWrites: map[types.UID]int{},
			}
			d, stop := u.bridge(t)
			var all []*victim
			for i := range 1 + u.intn(60) {
				time.Sleep(time.Duration(u.intn(4)*u.intn(10_000)) * time.Millisecond)
				all = append(all, u.evict(w.addPod(fmt.Sprint("p", i))))
				if u.intn(6) == 0 {
					u.replace(all[u.intn(len(all))].pod)
				}
				u.lagWatch()
				if u.intn(30) == 0 {
					u.set(func() { u.watchedPods = nil }) // a bridge starts with a list
					stop()
					d, stop = u.bridge(t)
				}
			}
			u.set(func() { u.watchedPods = nil })
			time.Sleep(time.Until(u.until) + 15*time.Minute)
			synctest.Wait()
			for _, v := range all {
				u.check(t, seed, v)
			}
			time.Sleep(2 * time.Hour)
			if stop(); d.events.inFlight || len(d.queue.inFlight) > 0 || len(d.queue.entries) > 0 || u.peakEvents > 2 { // two if a new bridge began while the old one's event was in flight
				t.Errorf("seed %d: event in flight %v, %d writes in flight, %d records pending, %d events at the same time, want none and at most 2", seed, d.events.inFlight, len(d.queue.inFlight), len(d.queue.entries), u.peakEvents)
			}
		})
	}
}

// bridge starts a bridge. stop must end it immediately.
func (u *unruly) bridge(t *testing.T) (d *Deliverer, stop func()) {
	d = New(Options{
		Node: "n1", Records: u.world, Pods: copies{u.world}, API: u, Log: slog.New(slog.DiscardHandler),
		WriteStatus: func(ctx context.Context) (bool, error) { return true, u.misbehave(ctx, false) },
	})
	u.mu.Lock()
	u.changed = d.Changed
	u.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { d.Run(ctx) })
	return d, func() {
		began := time.Now()
		cancel()
		if run.Wait(); time.Since(began) > 0 {
			t.Errorf("the bridge ended after %v, want immediately", time.Since(began))
		}
	}
}

// check compares the state of a victim's pod and events with its eviction.
func (u *unruly) check(t *testing.T, seed uint64, v *victim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.pods[v.pod.Name]
	failed := p != nil && p.Status.Phase == v1.PodFailed
	switch {
	case p == nil:
	case p.UID != v.pod.UID:
		if failed || p.Annotations[api.AnnotationEvicted] != "" {
			t.Errorf("seed %d: %s, which replaced a victim, is Failed", seed, p.Name)
		}
	case v.abandoned:
		for _, c := range p.Status.Conditions {
			if failed || c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
				t.Errorf("seed %d: eviction of %s was abandoned, but its status is %+v", seed, p.Name, p.Status)
			}
		}
	case !failed || p.Annotations[api.AnnotationEvicted] != v.record:
		t.Errorf("seed %d: %s of record %s is %s with annotations %v, want Failed by that record", seed, p.Name, v.record, p.Status.Phase, p.Annotations)
	}
	if n := u.failedWrites[v.pod.UID]; n > 1 {
		t.Errorf("seed %d: %s was set to Failed %d times, want once", seed, v.pod.Name, n)
	}
	n := 0
	for _, e := range u.world.events {
		if e.InvolvedObject.UID == v.pod.UID {
			n++
		}
	}
	if n < 1 || n > 1+v.runReports {
		t.Errorf("seed %d: %s has %d events, want one or one per report", seed, v.pod.Name, n)
	}
}
