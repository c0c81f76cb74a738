package agent

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/internal/manifests"
	"jettison/internal/podstore"
	"jettison/internal/socket"
)

// stateWait is how long a client waits for the loop to tell its state.
const stateWait = 2 * time.Second

// serve opens the socket, by which clients hand over pod objects and read the state, and reads static manifests. Close it with what it
// returns.
func (a *agent) serve(ctx context.Context) (stop func(), err error) {
	c := a.o.Config
	var server *socket.Server
	if c.Socket != "" {
		server, err = socket.Listen(socket.Options{Path: c.Socket, Group: c.SocketGroup, Pods: a.store, State: func() any {
			wait, cancel := context.WithTimeout(ctx, stateWait)
			defer cancel()
			if state, err := a.State(wait); err == nil {
				return state
			}
			return nil
		}})
		if err != nil {
			return nil, err
		}
	}
	var reader *manifests.Reader
	if c.StaticPodPath != "" {
		reader = manifests.Start(manifests.Options{
			Path: filepath.Join("/", a.o.HostRoot, c.StaticPodPath), Changed: func(all []*v1.Pod) {
				a.store.SetManifests(all)
				a.manifestsRead.Store(true)
			},
			Report: func(err error) {
				a.manifestsDoubted.Store(time.Now().UnixNano())
				a.log.Warn("a static pod's manifest is not known", "error", err)
			},
		})
	}
	return func() {
		if reader != nil {
			if err := reader.Close(); err != nil {
				a.log.Warn("stopping", "error", err)
			}
		}
		if server != nil {
			if err := server.Close(); err != nil {
				a.log.Warn("stopping", "error", err)
			}
		}
	}, nil
}

// known takes what is known of pod objects now.
func (a *agent) known(s *podstore.Snapshot) {
	a.objects = s.Pods
	limited := map[string]bool{}
	for uid, o := range s.Pods {
		if o.Limited() {
			limited[uid] = true
		}
	}
	a.limited = len(limited) > 0
	if a.background != nil && a.o.Config.LocalStorageCapacityIsolation {
		a.background.Eager(limited)
	}
}
