package read

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/podindex"
)

// runtimeSocket is the socket of the container runtime on the node of live benchmarks.
const runtimeSocket = "unix:///run/containerd/containerd.sock"

const (
	rowSummary = "Collect + Fill"
	rowCRI     = "CRI ListPodSandboxStats"
)

// BenchmarkLiveSummary measures the full look at the pods that the caller runs on the node,
// against the CRI's own answer to the same query.
func BenchmarkLiveSummary(b *testing.B) {
	c := liveCollector(b)
	client, err := cri.Dial(runtimeSocket, "")
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	lister := cri.NewLister(client)
	list := func() (podindex.Index, error) {
		l, err := lister.List(b.Context())
		return podindex.New(l), err
	}
	index, err := list()
	for tries := 0; err == nil && !detailed(index) && tries < 10; tries++ { // details arrive in portions
		index, err = list()
	}
	if err != nil {
		b.Fatal(err)
	}
	background := startLiveBackground(b, client, index)
	var s stats.Summary
	look := func() error {
		now := time.Now()
		err := c.Collect(now, index, &s)
		background.Fill(now, &s)
		return err
	}
	early, late := allocations(b, look, 5), allocations(b, look, 25)
	checkSummary(b, index, &s)
	ask := listPodSandboxStats(b, len(index))
	contenders := []*contender{
		{what: rowSummary, base: rowCRI, look: look},
		{what: rowSummary + ", the runtime listed first", base: rowCRI, look: func() error {
			listed, err := list()
			if err == nil {
				index = listed
				err = look()
			}
			return err
		}},
		{what: rowCRI, look: ask},
	}
	compete(b, contenders)
	table := newPodTable("full summary of real pods of two containers, p50 of all looks", "CRI", "ours")
	table.add(len(index), contenders, rowSummary)
	if err := table.Flush(); err != nil {
		b.Fatal(err)
	}
	fmt.Printf("allocations a look (%s): %d in the first 5, %d in the 25 that follow\n", rowSummary, early, late)
	if late > early+early/20 {
		b.Errorf("allocations grow from %d to %d a look", early, late)
	}
}

// detailed reports whether the runtime has reported all details of every pod.
func detailed(index podindex.Index) bool {
	for _, p := range index {
		if p.Cgroup == "" || !p.HasScore() {
			return false
		}
	}
	return true
}

// startLiveBackground starts a Background for disks and networks, and waits for its first
// answers.
func startLiveBackground(b *testing.B, client *cri.Client, index podindex.Index) *Background {
	b.Helper()
	host, err := hostroot.Open("")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { host.Close() })
	background := StartBackground(BackgroundOptions{Host: host, Runtime: client, Pods: index})
	b.Cleanup(background.Close)
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	background.WaitFirst(ctx)
	if ctx.Err() != nil {
		b.Fatal("disks and networks of pods: no answer within 5 minutes")
	}
	return background
}

// checkSummary fails unless every pod is complete, so that the compared work is the same.
func checkSummary(b *testing.B, index podindex.Index, s *stats.Summary) {
	b.Helper()
	if err := s.Err(); err != nil {
		b.Fatal(err)
	}
	if len(s.Pods) != len(index) || len(index) < 100 {
		b.Fatalf("%d pods in the summary, the runtime has %d", len(s.Pods), len(index))
	}
	for _, p := range s.Pods {
		if !p.Announced || !p.Memory.WorkingSetBytes.OK || !p.CPU.Usage.OK || !p.EphemeralStorage.UsedBytes.OK || len(p.Containers) != 2 {
			b.Fatalf("pod in the summary is incomplete: %+v", p)
		}
		for _, c := range p.Containers {
			if c.Name == "" || !c.Memory.WorkingSetBytes.OK || !c.CPU.Usage.OK || !c.Rootfs.OK {
				b.Fatalf("container of pod %s is incomplete: %+v", p.PodRef.Name, c)
			}
		}
	}
}

// listPodSandboxStats queries the runtime like a kubelet with PodAndContainerStatsFromCRI.
func listPodSandboxStats(b *testing.B, pods int) func() error {
	b.Helper()
	conn, err := grpc.NewClient(runtimeSocket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	client := runtimev1.NewRuntimeServiceClient(conn)
	return func() error {
		res, err := client.ListPodSandboxStats(b.Context(), &runtimev1.ListPodSandboxStatsRequest{})
		if err == nil && len(res.Stats) != pods {
			err = fmt.Errorf("%d pods in the answer, want %d", len(res.Stats), pods)
		}
		return err
	}
}
