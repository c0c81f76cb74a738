package cri

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// everything holds the calls that list all objects of a runtime.
var everything = map[string]func(context.Context, *Client) error{
	"Sandboxes": func(ctx context.Context, c *Client) error {
		_, err := c.Sandboxes(ctx, nil, func(*PodSandbox) {})
		return err
	},
	"AllContainers": func(ctx context.Context, c *Client) error {
		return c.AllContainers(ctx, nil, ContainerCallbacks{Container: func(*Container) {}})
	},
	"List":       func(ctx context.Context, c *Client) error { _, err := NewLister(c).List(ctx); return err },
	"ListImages": func(ctx context.Context, c *Client) error { _, err := c.ListImages(ctx); return err },
	"Alive":      func(ctx context.Context, c *Client) error { _, _, err := c.Alive(ctx); return err },
}

// While a list of everything is in progress, even without any data, no other one is requested: the
// runtime would send both concurrently. A status is requested, and a cancelled caller stops
// waiting.
func TestListsOfEverythingAreSerialized(t *testing.T) {
	t.Parallel()
	r := node(t)
	c := patient(dial(t, r.Endpoint()))
	r.Hang["ListPodSandbox"] = true
	ctx, end := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- everything["Sandboxes"](ctx, c) }()
	for tick := time.NewTicker(time.Millisecond); r.Calls("ListPodSandbox") == 0; {
		<-tick.C
	}
	r.Change(func() { r.Hang["ListPodSandbox"] = false })
	before := r.Calls("StreamContainers") + r.Calls("StreamImages")

	asking, waited := Waited(t.Context())
	if _, err := c.ContainerStatus(asking, "c1"); err != nil || waited() >= patienceForList {
		t.Errorf("status call: error %v, waited %v for its turn", err, waited())
	}
	var wait sync.WaitGroup
	for name, list := range everything {
		wait.Go(func() {
			if err := list(t.Context(), c); err != nil {
				t.Errorf("error of %s = %v, want none", name, err)
			}
		})
		over, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := list(over, c); !errors.Is(err, context.Canceled) {
			t.Errorf("error of the cancelled %s = %v, want Canceled", name, err)
		}
	}
	<-time.After(patienceForList + 2*patienceForTurn) // nothing is to happen
	if n := r.Calls("ListPodSandbox") + r.Calls("StreamContainers") + r.Calls("StreamImages") - before; n != 1 {
		t.Errorf("lists requested while one is in progress = %d, want 0", n-1)
	}
	end()
	wait.Wait()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A pod that is being ended has only its grace period: while lists of everything hang, its
// sandboxes and their containers are listed after patienceForList, which is waited once.
func TestSandboxesOfWhileListsHang(t *testing.T) {
	t.Parallel()
	r := node(t)
	r.Hang["ListContainers"] = true
	c := patient(dial(t, r.Endpoint()))
	ctx, end := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() { _ = everything["AllContainers"](ctx, c) })
	}
	for tick := time.NewTicker(time.Millisecond); r.Calls("ListContainers") == 0; {
		<-tick.C
	}
	r.Change(func() { r.Hang["ListContainers"] = false })
	asking, waited := Waited(t.Context())
	of, err := c.SandboxesOf(asking, "u")
	if err != nil || len(of) == 0 {
		t.Errorf("sandboxes of the pod = %v, error %v, want some", of, err)
	}
	for range 2 {
		if _, err := c.ContainersOf(asking, "s"); err != nil {
			t.Error(err)
		}
	}
	if took := waited(); took > 2*patienceForList { // each for itself would be three times as long
		t.Errorf("waiting time for the turn = %v, too long", took)
	}
	end()
	wait.Wait()
}

// A hung list of images of a separate endpoint does not delay lists of the runtime, and vice versa.
func TestImageEndpointHasSeparateTurn(t *testing.T) {
	t.Parallel()
	r, images := node(t), node(t)
	images.Hang["ListImages"] = true
	c, err := Dial(r.Endpoint(), images.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ctx, end := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { _ = everything["ListImages"](ctx, patient(c)) })
	for tick := time.NewTicker(time.Millisecond); images.Calls("ListImages") == 0; {
		<-tick.C
	}
	asking, waited := Waited(t.Context())
	if err := everything["List"](asking, c); err != nil || waited() >= patienceForList {
		t.Errorf("list of the runtime: error %v, waited %v for its turn", err, waited())
	}
	end()
	wait.Wait()
}

// The timeout of a list starts with its turn.
func TestListTimeoutStartsWithItsTurn(t *testing.T) {
	t.Parallel()
	r := node(t)
	const each = 800 * time.Millisecond
	for _, name := range []string{"ListPodSandbox", "ListImages"} {
		r.Delay[name] = each
	}
	c := patient(dial(t, r.Endpoint()))
	c.timeouts.list = 5 * each / 2 // of List: containers and, of a slow machine, some
	var wait sync.WaitGroup
	for range 2 {
		for _, name := range []string{"Sandboxes", "List", "ListImages"} {
			wait.Go(func() {
				if err := everything[name](t.Context(), c); err != nil {
					t.Errorf("error of %s = %v, want none", name, err)
				}
			})
		}
	}
	wait.Wait()
}
