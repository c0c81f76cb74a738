package deliver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/kube"
)

// world is an agent and an API server in virtual time. Its watch is not behind unless a test sets
// behind.
type world struct {
	mu sync.Mutex

	records    []*api.Record
	gap        *api.RecordsGap
	agentGone  bool          // the agent closes its streams
	agentHangs bool          // new streams stay silent
	updated    chan struct{} // closed when the agent has a change, or disconnects
	streams    int           // requests for a stream of records
	resyncs    int           // calls of Resync

	pods          map[string]*v1.Pod
	watchedPods   map[string]*v1.Pod // the pods that the watch has sent; nil: all
	version       int
	events        map[string]*v1.Event
	created       int      // CreateEvent calls that succeeded
	failed        []string // pods in the order in which they were set to Failed
	patched       int
	eventsOnly    bool  // statuses are not written
	muted         bool  // the kubelet does not report how containers ended
	loseResponses bool  // writes are performed but return an error
	lostError     error // that error; nil: a connection reset
	requestTimes  []time.Time
	requestNames  []string
	fault         func(what string) error         // nil: none
	latency       func(what string) time.Duration // nil: no time
	inFlight      int                             // requests in flight
	peak          int                             // highest number of these
	changed       func()
}

// during runs a Deliverer in virtual time while do changes the world, and returns the log. It fails
// the test if records or gaps are left undelivered.
func during(t *testing.T, do func(w *world)) (log string) {
	t.Helper()
	var text strings.Builder
	synctest.Test(t, func(t *testing.T) {
		w := &world{updated: make(chan struct{}), pods: map[string]*v1.Pod{}, events: map[string]*v1.Event{}}
		d := New(Options{
			Node: "n1", Records: w, Pods: copies{w}, API: w, Log: slog.New(slog.NewTextHandler(&text, nil)),
			WriteStatus: func(ctx context.Context) (bool, error) {
				err := w.request(ctx, "version")
				w.mu.Lock()
				defer w.mu.Unlock()
				return !w.eventsOnly, err
			},
		})
		w.changed = d.Changed
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { d.Run(ctx) })
		do(w)
		time.Sleep(2 * time.Hour) // the longest wait
		synctest.Wait()
		cancel()
		run.Wait()
		if len(d.queue.entries) > 0 || len(d.gaps.events) > 0 {
			t.Errorf("%d records and %d gaps are not delivered, want none", len(d.queue.entries), len(d.gaps.events))
		}
	})
	return text.String()
}

// inspect returns get's result under the lock when all goroutines are blocked.
func inspect[T any](w *world, get func() T) T {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return get()
}

// set changes the world and notifies the agent's streams and the watch.
func (w *world) set(f func()) {
	w.mu.Lock()
	f()
	close(w.updated)
	w.updated = make(chan struct{})
	w.mu.Unlock()
	w.changed()
}

// updateRecord replaces a record without a notification of the watch.
func (w *world) updateRecord(r *api.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records[slices.IndexFunc(w.records, func(o *api.Record) bool { return o.ID == r.ID })] = r
	close(w.updated)
	w.updated = make(chan struct{})
}

// addOngoing adds the record of an eviction in progress and returns it.
func (w *world) addOngoing(p *v1.Pod) api.Record {
	r := *record(p, time.Now())
	r.Outcome, r.Complete, r.Emptied, r.Cleaned = api.OutcomeRunning, false, api.Stamp{}, api.Stamp{}
	first := r
	w.set(func() { w.records = append(w.records, &first) })
	return r
}

// emptied returns the record after the victim's end; it is not final yet.
func emptied(r api.Record) api.Record {
	r.Emptied = api.Stamp{Time: time.Now()}
	r.Cleaned = r.Emptied
	return r
}

// finished returns the final record.
func finished(r api.Record) api.Record {
	r.Outcome, r.Complete = api.OutcomeBack, true
	return r
}

// phase returns the phase of a pod.
func (w *world) phase(name string) v1.PodPhase {
	return inspect(w, func() v1.PodPhase { return w.pods[name].Status.Phase })
}

// faultOf returns a fault that makes requests with the prefix fail.
func faultOf(prefix string, err error) func(string) error {
	return func(what string) error {
		if strings.HasPrefix(what, prefix) {
			return err
		}
		return nil
	}
}

// latencyOf returns a function that makes requests with the prefix slow.
func latencyOf(prefix string, took time.Duration) func(string) time.Duration {
	return func(what string) time.Duration {
		if strings.HasPrefix(what, prefix) {
			return took
		}
		return 0
	}
}

// addPod adds a running pod.
func (w *world) addPod(name string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "c"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))}},
		}}},
	}
	w.set(func() { w.storePod(p) })
	return p
}

// storePod stores a new version of a pod. The caller holds the lock.
func (w *world) storePod(p *v1.Pod) {
	w.version++
	p.ResourceVersion = strconv.Itoa(w.version)
	w.pods[p.Name] = p
}

const message = "The node was low on resource: memory. "

// addEviction adds the final record of an evicted pod.
func (w *world) addEviction(p *v1.Pod) *api.Record {
	r := record(p, time.Now())
	w.set(func() {
		r.ID = fmt.Sprintf("%s-%04x", r.ID, len(w.records))
		w.records = append(w.records, r)
	})
	return r
}

// record returns the final record of an evicted pod.
func record(p *v1.Pod, began time.Time) *api.Record {
	at := api.Stamp{Time: began}
	return &api.Record{
		ID: began.UTC().Format("20060102T150405.000000Z"), Outcome: api.OutcomeBack, Signal: "memory.available",
		Threshold: "memory.available<100Mi", Message: message, StatusReason: "Evicted", Disruption: true,
		Pod: api.Victim{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name}, Began: at, Killed: at, Emptied: at, Cleaned: at, Complete: true,
	}
}

func (w *world) FollowRecords(ctx context.Context, o api.RecordsOptions, each func(*api.RecordsLine) error) error {
	w.mu.Lock()
	w.streams++
	gap, hangs := w.gap, w.agentHangs
	w.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if gap != nil && gap.Until > o.After {
		if err := each(&api.RecordsLine{Gap: gap}); err != nil {
			return err
		}
	}
	sent := map[string]*api.Record{}
	for synced := false; ; {
		w.mu.Lock()
		records, news, away := slices.Clone(w.records), w.updated, w.agentGone
		w.mu.Unlock()
		if away {
			return errors.New("no agent")
		}
		for _, r := range records {
			if r.ID <= o.After || sent[r.ID] == r {
				continue
			}
			sent[r.ID] = r
			if err := each(&api.RecordsLine{Record: r}); err != nil {
				return err
			}
		}
		if !synced {
			synced = true
			if err := each(&api.RecordsLine{Synced: true}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

// timeoutOf returns the timeout of kube.Client.
func timeoutOf(ctx context.Context) time.Duration {
	if kube.HasWebhookTimeout(ctx) {
		return 40 * time.Second
	}
	return 10 * time.Second
}

// request counts a request to the API server and applies latency and fault.
func (w *world) request(ctx context.Context, what string) error {
	w.mu.Lock()
	fault, takes := w.fault, w.latency
	w.requestTimes, w.requestNames = append(w.requestTimes, time.Now()), append(w.requestNames, what)
	w.inFlight++
	w.peak = max(w.peak, w.inFlight)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.inFlight--
		w.mu.Unlock()
	}()
	if takes != nil {
		took, limit := takes(what), timeoutOf(ctx)
		if retry.Sleep(ctx, min(took, limit)); ctx.Err() != nil {
			return ctx.Err()
		}
		if took > limit {
			return context.DeadlineExceeded
		}
	}
	if fault == nil {
		return nil
	}
	return fault(what)
}

func (w *world) Pod(ctx context.Context, _, name string) (*v1.Pod, error) {
	if name == "" { // as kube.Client, without a request
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	if err := w.request(ctx, "get "+name); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[name]; p != nil {
		return p, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

func (w *world) Node(ctx context.Context, name string) (*v1.Node, error) {
	if err := w.request(ctx, "get node"); err != nil {
		return nil, err
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

func (w *world) PatchPodStatus(ctx context.Context, _, name string, body []byte) (*v1.Pod, error) {
	if err := w.request(kube.WithWebhookTimeout(ctx), "patch "+name); err != nil { // as kube.Client

		return nil, err
	}
	var p v1.Pod
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.pods[name]
	if was == nil || was.UID != p.UID || was.ResourceVersion != p.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("modified"))
	}
	next := was.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	maps.Copy(next.Annotations, p.Annotations)
	if p.Status.Phase != "" {
		for i := range next.Status.ContainerStatuses { // as the kubelet reports, unless the test mutes it
			if s := &next.Status.ContainerStatuses[i].State; s.Running != nil && !w.muted {
				*s = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{StartedAt: s.Running.StartedAt, ExitCode: 137}}
			}
		}
		next.Status.Phase, next.Status.Reason, next.Status.Message = p.Status.Phase, p.Status.Reason, p.Status.Message
		w.failed = append(w.failed, name)
	}
	for _, c := range p.Status.Conditions {
		next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
		next.Status.Conditions = append(next.Status.Conditions, c)
	}
	w.patched++
	w.storePod(next)
	w.changed()
	if w.loseResponses {
		return nil, cmp.Or(w.lostError, errors.New("connection reset by peer"))
	}
	return next, nil
}

// CreateEvent stores an event, once per name, as kube.Client.
func (w *world) CreateEvent(ctx context.Context, e *v1.Event) error {
	if err := w.request(ctx, "event "+e.Name); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[e.Namespace+"/"+e.Name] = e
	w.created++
	return nil
}

// reasons returns the reasons of the events, sorted. The caller holds the lock.
func (w *world) reasons() (out []string) {
	for _, e := range w.events {
		out = append(out, e.Reason)
	}
	slices.Sort(out)
	return out
}

// copies is the copy of the node's pods.
type copies struct{ w *world }

func (c copies) Pod(_, name string) *v1.Pod {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.watchedPods != nil {
		return c.w.watchedPods[name]
	}
	return c.w.pods[name]
}

// Synced returns a time before the first eviction.
func (copies) Synced() (time.Time, bool) { return time.Now().Add(-24 * time.Hour), true }

func (c copies) Resync() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.resyncs++
}
