package nri

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"

	"jettison/cri"
)

// BenchmarkEvent measures the round trip of an event from containerd's side of the protocol, with
// 1000 known pods and 20 in their hold-off: ns/op is the delay of a pod's start.
func BenchmarkEvent(b *testing.B) {
	for _, held := range []bool{false, true} {
		b.Run(fmt.Sprintf("held=%v", held), func(b *testing.B) {
			socket, ctx, holds := socketIn(b), context.Background(), &HoldOffs{}
			var pods []*api.PodSandbox
			for i := range 1000 {
				pods = append(pods, pod(i))
			}
			r := runtime(b, socket, pods, nil)
			p := start(b, Options{Socket: socket, HoldOffs: holds})
			wait(b, p, "pods", synced)
			r.BlockPluginSync().Unblock()
			if held {
				for i := range 20 {
					holds.Set(time.Now(), fmt.Sprintf("uid-%d", i), Hold{Until: time.Now().Add(time.Hour), Reason: "memory.available"})
				}
			}
			req := &api.CreateContainerRequest{Pod: pod(1), Container: container(1, 1, 0)}
			for b.Loop() {
				if _, err := r.CreateContainer(ctx, req); (err != nil) != held {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAnswer measures the plugin's part of the round trip: decode, look up, apply.
func BenchmarkAnswer(b *testing.B) {
	body, err := proto.Marshal(&api.CreateContainerRequest{Pod: pod(1), Container: container(1, 1, 0)})
	check(b, err)
	p, err := New(Options{})
	check(b, err)
	b.ReportAllocs()
	for b.Loop() {
		e, err := parseEvent(body)
		check(b, err)
		if _, held := p.o.HoldOffs.Held(time.Now(), e.pod.UID); held {
			b.Fatal("pod is held off unexpectedly")
		}
		p.apply(time.Now(), eventCreate, e)
	}
}

// BenchmarkSnapshot measures a snapshot after one of 1000 pods has changed.
func BenchmarkSnapshot(b *testing.B) {
	x := newIndex()
	for i := range 1000 {
		x.put(cri.PodSandbox{ID: fmt.Sprint("s", i), UID: fmt.Sprint("u", i)})
	}
	x.snapshot()
	b.ReportAllocs()
	for b.Loop() {
		x.dirty["u7"] = struct{}{}
		x.snapshot()
	}
}
