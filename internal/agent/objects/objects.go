// Package objects collects the known pod objects: those that clients provide on the agent's socket,
// those of static manifests, and those of the kubelet's local pods API. It also serves the socket.
package objects

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/objects/kubeletpods"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/serve/socket"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/manifests"
)

// Options of New.
type Options struct {
	Socket, Group string // empty: no socket
	// the directory of static manifests in this process's view; empty: none
	Manifests string
	State     func() any // see socket.Options
	// see socket.Options
	Outlook     func(context.Context) (*api.Outlook, error)
	Admission   socket.Admission // see socket.Options
	Reads       socket.Reads     // see socket.Options
	OnManifests func()           // called outside the loop after all manifests were read
	OnDoubt     func(time.Time)  // called outside the loop for an unreadable manifest
	// the socket of the kubelet's pods API in this process's view; empty: not used
	Kubelet string
	Log     *logthrottle.Logger
}

// Objects is the loop's part. The socket and the manifests have their own goroutines, which pass
// objects through the store.
type Objects struct {
	o       Options
	store   *podstore.Store
	pods    map[string]*eviction.Pod // by UID
	limited map[string]bool          // UIDs of those with limits on local storage
	refused map[string]struct{}      // UIDs whose rejected objects are logged
}

// New returns an Objects without objects.
func New(o Options) *Objects {
	return &Objects{o: o, store: podstore.New(), refused: map[string]struct{}{}}
}

// Store returns the store, which is safe for concurrent use.
func (o *Objects) Store() *podstore.Store { return o.store }

// Start opens the socket, and starts to read static manifests and the kubelet's pods. stop ends all
// of these.
func (o *Objects) Start() (stop func(), err error) {
	var server *socket.Server
	if o.o.Socket != "" {
		server, err = socket.Listen(socket.Options{
			Path: o.o.Socket, Group: o.o.Group, Pods: o.store, State: o.o.State, Outlook: o.o.Outlook,
			Admission: o.o.Admission, Reads: o.o.Reads,
		})
		if err != nil {
			return nil, err
		}
	}
	var reader *manifests.Reader
	if o.o.Manifests != "" {
		reader = o.readManifests()
	}
	var kubelet *kubeletpods.Reader
	if o.o.Kubelet != "" {
		kubelet = kubeletpods.Start(kubeletpods.Options{Socket: o.o.Kubelet, Store: o.store,
			Log: o.o.Log.Logger})
	}
	return func() {
		if kubelet != nil {
			kubelet.Close()
		}
		if reader != nil {
			if err := reader.Close(); err != nil {
				o.o.Log.Warn("agent stop incomplete", "error", err)
			}
		}
		if server != nil {
			if err := server.Close(); err != nil {
				o.o.Log.Warn("agent stop incomplete", "error", err)
			}
		}
	}, nil
}

// readManifests reads static manifests outside the loop, and again after each change.
func (o *Objects) readManifests() *manifests.Reader {
	store, options, log := o.store, o.o, o.o.Log.Logger // the goroutine uses only these
	return manifests.Start(manifests.Options{
		Path: options.Manifests,
		Changed: func(all []*v1.Pod) {
			store.SetManifests(all)
			options.OnManifests()
		},
		Report: func(err error) {
			options.OnDoubt(time.Now())
			//log: A static pod's manifest is missing fields, malformed or unreadable. The agent
			//  does not know the priority and requests of this pod from it.
			//do: Correct the file that error names.
			log.Warn("static pod manifest invalid", api.EventPod.Attr(), "error", err)
		},
	})
}

// Changed receives a value when OnChanged has new objects to read.
func (o *Objects) Changed() <-chan struct{} { return o.store.Changed() }

// OnChanged reads the current objects of the store. It returns the UIDs of those with limits on
// local storage.
func (o *Objects) OnChanged() (limited map[string]bool) {
	s := o.store.Snapshot()
	o.refuse(s.Refused)
	o.pods, o.limited = s.Pods, map[string]bool{}
	for uid, p := range o.pods {
		if p.Limited() {
			o.limited[uid] = true
		}
	}
	return o.limited
}

// maxRefusedLogs bounds the rejected objects that one change logs by name.
const maxRefusedLogs = 8

// refuse logs rejected objects of clients, once for each pod.
func (o *Objects) refuse(now []podstore.Rejected) {
	var fresh []podstore.Rejected
	for _, r := range now {
		if _, logged := o.refused[r.Runtime.UID]; !logged {
			fresh = append(fresh, r)
		}
	}
	if len(o.refused)+len(fresh) > podstore.MaxPods { // bounds the map
		clear(o.refused)
	}
	for i, r := range fresh {
		o.refused[r.Runtime.UID] = struct{}{}
		if i == maxRefusedLogs {
			//log: One change had more rejected pod objects than are logged one by one.
			//do: See the message about a rejected pod object.
			o.o.Log.Warn("further pod objects rejected", api.EventPod.Attr(), "objects",
				len(fresh)-maxRefusedLogs)
		}
		if i < maxRefusedLogs {
			//log: A client provided an object with the UID of a pod that has another name in the
			//  runtime. The agent ignores the object.
			//do: Correct the client. A stale copy of the pods or a wrong node name is a common
			//  cause.
			o.o.Log.Warn("pod object rejected, runtime has another pod",
				api.EventPod.Attr(),
				"uid", r.Runtime.UID,
				"object", r.Object.Namespace+"/"+r.Object.Name, "runtime", r.Runtime.Namespace+"/"+
					r.Runtime.Name)
		}
	}
}

// Refused returns the number of rejected objects of clients: those whose UID is another pod in the
// runtime.
func (o *Objects) Refused() int { return len(o.store.Snapshot().Refused) }

// Pods returns the objects by UID, as of the last OnChanged. Callers must not change the map.
func (o *Objects) Pods() map[string]*eviction.Pod { return o.pods }

// Limited reports whether any object has limits on local storage.
func (o *Objects) Limited() bool { return len(o.limited) > 0 }

// Clients returns the number of objects that only clients provided.
func (o *Objects) Clients() int { return o.store.Snapshot().Clients }

// FillPodCount fills in when the kubelet and clients were last active, and how many objects of clients may
// therefore be stale.
func (o *Objects) FillPodCount(now time.Time, count *api.PodCount) {
	count.Kubelet = o.store.Snapshot().Kubelet
	if synced := o.store.KubeletSynced(); !synced.IsZero() {
		count.KubeletSynced = &synced
	}
	heard, synced := o.store.ClientTimes()
	if heard.IsZero() {
		return
	}
	count.ClientHeard = &heard
	if !synced.IsZero() {
		count.ClientSynced = &synced
	}
	if now.Sub(heard) >= api.StaleAfter {
		count.Stale = count.Clients
	}
}

// All returns the current objects of the store.
func (o *Objects) All() []*v1.Pod { return o.store.Snapshot().Objects }

// Provided returns the current objects of the store, and the UIDs of those that only members of the
// socket's group provided. For any goroutine.
func (o *Objects) Provided() (all []*v1.Pod, members map[string]bool) {
	s := o.store.Snapshot()
	return s.Objects, s.Members
}

// Object returns the object with a UID; nil: none.
func (o *Objects) Object(uid string) *v1.Pod {
	for _, p := range o.All() {
		if string(p.UID) == uid {
			return p
		}
	}
	return nil
}

// ManifestPath returns the path of a kubelet's staticPodPath below the node's root directory;
// empty: no static manifests.
func ManifestPath(hostRoot, staticPodPath string) string {
	if staticPodPath == "" {
		return ""
	}
	return filepath.Join("/", hostRoot, staticPodPath)
}
