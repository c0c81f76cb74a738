// Package objects keeps what is known of pod objects: those that clients hand over on the agent's
// socket, those of static manifests, and those that the kubelet tells by its local pods API. It
// serves the socket, too.
package objects

import (
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
	Socket, Group string // empty: clients have no way in
	// the directory of static manifests in this process's view; empty: there are none
	Manifests   string
	State       func() any       // what the socket tells of the agent, for any goroutine
	Outlook     func() any       // likewise: whom each threshold would have evicted
	Admission   socket.Admission // nil: clients are not told whether the node takes a pod
	Reads       socket.Reads     // nil: nothing else is told
	OnManifests func()           // all manifests were read; called beside the loop
	OnDoubt     func(time.Time)
	// the socket of the kubelet's pods API in this process's view; empty: it is not asked
	Kubelet string
	Log     *logthrottle.Logger
}

// Objects are the loop's part. The socket and the manifests have goroutines of their own, which
// hand over through the store.
type Objects struct {
	o       Options
	store   *podstore.Store
	pods    map[string]*eviction.Pod // by UID
	limited map[string]bool          // UIDs of those with limits on local storage
	refused map[string]struct{}      // UIDs of those that were said to be refused
}

// New makes an Objects that knows of none.
func New(o Options) *Objects {
	return &Objects{o: o, store: podstore.New(), refused: map[string]struct{}{}}
}

// Store is where objects are handed over. It is safe for concurrent use.
func (o *Objects) Store() *podstore.Store { return o.store }

// Start opens the socket, reads static manifests and follows the kubelet. The returned function
// ends all of that.
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
				o.o.Log.Warn("stopping", "error", err)
			}
		}
		if server != nil {
			if err := server.Close(); err != nil {
				o.o.Log.Warn("stopping", "error", err)
			}
		}
	}, nil
}

// readManifests reads static manifests beside the loop, again whenever they change.
func (o *Objects) readManifests() *manifests.Reader {
	store, options, log := o.store, o.o, o.o.Log.Logger // all that it may use there
	return manifests.Start(manifests.Options{
		Path: options.Manifests,
		Changed: func(all []*v1.Pod) {
			store.SetManifests(all)
			options.OnManifests()
		},
		Report: func(err error) {
			options.OnDoubt(time.Now())
			log.Warn("a static pod's manifest is not known", api.EventPod.Attr(), "error", err)
		},
	})
}

// Changed gets a value when OnChanged has something new to take.
func (o *Objects) Changed() <-chan struct{} { return o.store.Changed() }

// OnChanged takes what is known of pod objects now. limited are the UIDs of those that have limits
// on local storage.
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

// saidAtOnce is how many objects that are refused are named at once.
const saidAtOnce = 8

// refuse logs that objects of clients are refused, once of each pod.
func (o *Objects) refuse(now []podstore.Refused) {
	var fresh []podstore.Refused
	for _, r := range now {
		if _, said := o.refused[r.Runtime.UID]; !said {
			fresh = append(fresh, r)
		}
	}
	if len(o.refused)+len(fresh) > podstore.MaxPods { // pods come and go
		clear(o.refused)
	}
	for i, r := range fresh {
		o.refused[r.Runtime.UID] = struct{}{}
		if i == saidAtOnce {
			o.o.Log.Warn("more pod objects of clients are refused", api.EventPod.Attr(), "objects",
				len(fresh)-saidAtOnce)
		}
		if i < saidAtOnce {
			o.o.Log.Warn("a pod object of a client is refused: the runtime has another pod by its UID",
				api.EventPod.Attr(),
				"uid", r.Runtime.UID,
				"object", r.Object.Namespace+"/"+r.Object.Name, "runtime", r.Runtime.Namespace+"/"+
					r.Runtime.Name)
		}
	}
}

// Refused is how many objects of clients are of other pods than the runtime has by their UIDs.
func (o *Objects) Refused() int { return len(o.store.Snapshot().Refused) }

// Pods are the objects by UID, as OnChanged took them. The map must not be changed.
func (o *Objects) Pods() map[string]*eviction.Pod { return o.pods }

// Limited reports whether one of them has limits on local storage.
func (o *Objects) Limited() bool { return len(o.limited) > 0 }

// Clients is how many of them only clients told of.
func (o *Objects) Clients() int { return o.store.Snapshot().Clients }

// Heard fills in when kubelet and clients were heard, and how many objects of clients may be out of
// date for that.
func (o *Objects) Heard(now time.Time, count *api.PodCount) {
	count.Kubelet = o.store.Snapshot().Kubelet
	if told := o.store.Kubelet(); !told.IsZero() {
		count.KubeletSynced = &told
	}
	heard, synced := o.store.Heard()
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

// All are the objects as the store has them now.
func (o *Objects) All() []*v1.Pod { return o.store.Snapshot().Objects }

// Object is that of a UID; nil: there is none.
func (o *Objects) Object(uid string) *v1.Pod {
	for _, p := range o.All() {
		if string(p.UID) == uid {
			return p
		}
	}
	return nil
}

// ManifestPath is where a kubelet's staticPodPath is seen below the node's root directory; empty:
// there are none.
func ManifestPath(hostRoot, staticPodPath string) string {
	if staticPodPath == "" {
		return ""
	}
	return filepath.Join("/", hostRoot, staticPodPath)
}
