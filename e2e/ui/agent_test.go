package ui

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/serve/endpoints"
	"jettison/internal/agent/serve/eventlog"
	"jettison/internal/agent/serve/socket"
	"jettison/internal/node/records"
	"jettison/stats"
)

const (
	mib       = 1 << 20
	gib       = 1 << 30
	threshold = 100 * mib
)

// agent is a scripted agent that answers with the handlers of a real one.
type agent struct {
	t      *testing.T
	path   string // of its socket
	server *socket.Server
	log    *slog.Logger

	mu        sync.Mutex
	available uint64 // of memory
	first     string // the pod ranked first
	records   []*api.Record
	short     bool
	diskShort bool
	dryRun    bool
	unranked  error         // why there is no ranking; nil: there is one
	looks     int           // queries for the ranking
	states    int           // queries for the state
	diskUsage time.Duration // age of the disk usage
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "p") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &agent{t: t, path: filepath.Join(dir, "s.sock"), available: 620 * mib, first: "shop/leaker", records: []*api.Record{}}
	a.start()
	return a
}

// start starts the server, with its own log; stop ends it.
func (a *agent) start() {
	a.t.Helper()
	ring := eventlog.NewRing(time.Now())
	a.log = slog.New(eventlog.NewHandler(ring, slog.DiscardHandler))
	var err error
	a.server, err = socket.Listen(socket.Options{
		Path: a.path, Pods: podstore.New(), State: a.state, Outlook: a.outlook,
		Reads: endpoints.New(endpoints.Options{Events: ring, Records: recent{agent: a}}),
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) stop() {
	a.t.Helper()
	if err := a.server.Close(); err != nil {
		a.t.Fatal(err)
	}
}

// set changes the agent's answers, as its loop would.
func (a *agent) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// recent has the records that a test has set.
type recent struct {
	*records.Queue // nil: no follower
	agent          *agent
}

// Recent returns all of them.
func (r recent) Recent() ([]*api.Record, bool) {
	r.agent.mu.Lock()
	defer r.agent.mu.Unlock()
	return append([]*api.Record{}, r.agent.records...), true
}

func (a *agent) state() any {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.states++
	now := time.Now()
	since := now.Add(-90 * time.Second)
	signal := func(name stats.Signal, available, capacity uint64, thresholds []string, limits ...uint64) api.SignalState {
		return api.SignalState{Signal: name, Observed: true, Available: available, Capacity: capacity, Time: &now, Threshold: thresholds, Limits: limits}
	}
	s := &api.State{
		Time: now, Version: "v1.2.3", Runtime: api.RuntimeState{Endpoint: "unix:///run/containerd/containerd.sock"}, Disk: "act",
		Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: a.short}, {Type: "DiskPressure"}, {Type: "PIDPressure"}},
		Signals: []api.SignalState{
			signal(stats.SignalMemoryAvailable, a.available, gib, []string{"memory.available<100Mi", "memory.available<250Mi for 1m30s"}, threshold, 250*mib),
			signal(stats.SignalNodeFsAvailable, 41*gib, 100*gib, []string{"nodefs.available<10%"}, 10*gib),
			signal(stats.SignalNodeFsInodesFree, 6_200_000, 6_553_600, []string{"nodefs.inodesFree<5%"}, 327_680),
			signal(stats.SignalMemoryPressureFull, 23_000, stats.ShareUnit, []string{"memory.pressure.full>40%"}, 400_000),
			{Signal: stats.SignalImageFsAvailable, Reason: "the runtime does not answer", Threshold: []string{"imagefs.available<15%"}},
		},
		Pods: api.PodCount{Runtime: 110, UnknownPriority: &api.UnknownPriority{Pods: 3, Unprotected: 1}},
		Gate: &api.GateState{Asked: true, Enforced: true, Admitted: 113, Refused: 2, HeldOff: 4, Reasons: map[string]uint64{"OutOfmemory": 2},
			Answers: api.LatencyState{Count: 119, P50: 180 * time.Microsecond, P99: 2 * time.Millisecond}},
	}
	if a.diskShort {
		s.Signals[1].Available = 7 * gib
		s.Met = append(s.Met, api.MetState{Signal: stats.SignalNodeFsAvailable, Observed: "7Gi", Threshold: "10Gi", Since: since})
	}
	if a.short {
		s.Met = append(s.Met, api.MetState{Signal: stats.SignalMemoryAvailable, Observed: "92Mi", Threshold: "100Mi", Since: since})
		s.Conditions[0].LastTransitionTime = &since
		s.Conditions[0].Reason = "KubeletHasInsufficientMemory"
	}
	return s
}

func (a *agent) outlook(context.Context) (*api.Outlook, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.looks++; a.unranked != nil {
		return nil, a.unranked
	}
	t := api.ThresholdOutlook{
		Signal: stats.SignalMemoryAvailable, Threshold: "memory.available<100Mi", Limit: threshold, Met: a.short,
		Protected: []api.ProtectedPods{{Reason: "a static pod", Pods: []string{"kube-system/etcd", "kube-system/kube-apiserver"}}},
	}
	for i, p := range []struct {
		name     string
		qos      stats.QOSClass
		releases uint64
		by       string
	}{
		{a.first, "BestEffort", 812 * mib, ""}, {"shop/cache", "Burstable", 96 * mib, "exceeds its request"},
		{"shop/web-7f9c4", "Burstable", 148 * mib, "priority"}, {"shop/database-0", "Guaranteed", 256 * mib, "exceeds its request"},
	} {
		priority := int32(i * 1000)
		t.Ranking = append(t.Ranking, api.RankedPod{
			Candidate: api.Candidate{Pod: p.name, UID: fmt.Sprint("uid-", i), QOSClass: p.qos, DecidedBy: p.by, Keys: "uses 812Mi, requests 0"},
			Priority:  &priority, Releases: &p.releases,
		})
	}
	t.Ranking[2].Priority, t.Ranking[1].Releases = nil, nil
	disk := api.ThresholdOutlook{Signal: stats.SignalNodeFsAvailable, Threshold: "nodefs.available<10%", Met: a.diskShort,
		Ranking: []api.RankedPod{ // nothing is known of their memory and priority
			{Candidate: api.Candidate{Pod: "shop/logger", UID: "uid-8", QOSClass: "Burstable", Keys: "uses 21Gi of disk, requests 0"}},
			{Candidate: api.Candidate{Pod: "uid:6f1d3c1a", UID: "6f1d3c1a", QOSClass: "BestEffort", Keys: "uses 1Gi of disk, requests 0", DecidedBy: "usage"}},
		}}
	measured := time.Now().Add(-a.diskUsage)
	disk.DiskUsageTime = &measured
	return &api.Outlook{Time: time.Now(), DryRun: a.dryRun, Thresholds: []api.ThresholdOutlook{t, disk}}, nil
}

// evict reports a completed eviction: its record, and then its log line.
func (a *agent) evict(id, name string) {
	now := time.Now()
	at := func(ms float64) api.Stamp {
		d := time.Duration(ms * float64(time.Millisecond))
		return api.Stamp{Time: now.Add(d), Monotonic: time.Hour + d}
	}
	reading := func(ms float64, available uint64) *api.Reading {
		capacity := uint64(gib)
		return &api.Reading{Stamp: at(ms), Available: &available, Capacity: &capacity}
	}
	predicted, released := uint64(812*mib), uint64(790*mib)
	r := &api.Record{
		Version: api.RecordVersion, ID: id, Pod: api.Victim{UID: "uid-0", Namespace: "shop", Name: name, QOSClass: "BestEffort", Cgroup: "kubepods/besteffort/poduid-0"},
		Signal: stats.SignalMemoryAvailable, Threshold: "memory.available<100Mi", GracePeriodSeconds: 1,
		Reason:  "of 4 candidates it uses most beyond its request: 812Mi, requests 0",
		Message: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 92Mi. ",
		Crossed: reading(-4.1, 98*mib), Decided: reading(-1.2, 92*mib), After: reading(61, 880*mib), Began: at(-0.3), Killed: at(0), Emptied: at(38),
		Ranking: api.Ranking{Rows: []api.Candidate{{Pod: "shop/" + name, QOSClass: "BestEffort"}, {Pod: "shop/cache", QOSClass: "Burstable", DecidedBy: "exceeds its request"}}, More: 2, Protected: 2},
		Steps: []api.Step{
			{Name: "pin", Monotonic: at(-0.2).Monotonic, N: 2}, {Name: "cgroup.kill", Monotonic: at(0.1).Monotonic}, {Name: "cpu", Monotonic: at(0.6).Monotonic, N: 3, Error: "sched_setattr: operation not permitted"},
			{Name: "mrelease", Monotonic: at(21).Monotonic, N: 5}, {Name: "StopPodSandbox", Monotonic: at(180).Monotonic},
		},
		Predicted: &predicted, Released: &released, Outcome: api.OutcomeBack, HoldOffUntil: now.Add(30 * time.Second),
	}
	a.set(func() { a.records = append(a.records, r) })
	a.log.Info("evicted", api.EventEviction.Attr(), "signal", "memory.available", "observed", 92*mib, "victim", "shop/"+name, "reason", r.Reason)
}
