package nodes

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// decode reads a body strictly.
func (a *api) decode(r *http.Request, into any) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		a.t.Errorf("body of %s %s is invalid: %v", r.Method, r.URL.Path, err)
	}
}

// addWrite records a completed write.
func (a *api) addWrite(client, what string, w write) {
	w.at, w.client, w.what = time.Now(), client, what
	name := ""
	if w.pod != nil {
		name = w.pod.Spec.NodeName
		w.node = a.nodes[name]
	} else if w.node != nil {
		name = w.node.Name
	}
	if l := a.leases[v1.NamespaceNodeLease+"/"+name]; l != nil {
		w.renewedAt = l.ManagedFields[0].Time.Time
	}
	a.writeLog = append(a.writeLog, w)
}

type nodePatch struct {
	Metadata struct {
		UID             types.UID
		ResourceVersion string
		Labels          map[string]string
	}
	Spec   struct{ Taints *[]v1.Taint }
	Status struct{ Conditions []v1.NodeCondition }
}

func (a *api) patchNode(w http.ResponseWriter, r *http.Request, client string, parts []string) {
	var p nodePatch
	a.decode(r, &p)
	a.change(func() {
		is := a.nodes[parts[1]]
		switch {
		case is == nil:
			writeError(w, http.StatusNotFound, parts[1])
			return
		case p.Metadata.UID != is.UID, p.Metadata.ResourceVersion != is.ResourceVersion:
			writeError(w, http.StatusConflict, "the object has been modified")
			return
		}
		out := is.DeepCopy()
		what := "labels"
		if len(parts) > 2 {
			what = "status"
			for _, c := range p.Status.Conditions {
				out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions, func(o v1.NodeCondition) bool { return o.Type == c.Type })
				out.Status.Conditions = append(out.Status.Conditions, c)
			}
		} else if p.Spec.Taints != nil {
			what, out.Spec.Taints = "taints", *p.Spec.Taints
		}
		maps.Copy(out.Labels, p.Metadata.Labels)
		a.putNode(out)
		a.addWrite(client, what+" "+is.Name, write{node: is, written: out, uid: p.Metadata.UID})
		writeObject(w, out)
	})
}

func (a *api) patchPod(w http.ResponseWriter, r *http.Request, client, key string) {
	var p struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
		}
		Status struct{ Conditions []v1.PodCondition }
	}
	a.decode(r, &p)
	a.change(func() {
		is := a.pods[key]
		switch {
		case is == nil:
			writeError(w, http.StatusNotFound, key)
			return
		case p.Metadata.UID != is.UID, p.Metadata.ResourceVersion != is.ResourceVersion:
			writeError(w, http.StatusConflict, "uid or version")
			return
		}
		out := is.DeepCopy()
		for _, c := range p.Status.Conditions {
			out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
			out.Status.Conditions = append(out.Status.Conditions, c)
		}
		a.putPod(out)
		a.addWrite(client, "condition "+key, write{pod: out, uid: p.Metadata.UID})
		writeObject(w, out)
	})
}

// terminatePod starts the deletion of a pod. The pod object stays, as for a pod on a node with a
// dead kubelet.
func (a *api) terminatePod(w http.ResponseWriter, client, what string, is *v1.Pod, uid types.UID) {
	target := slices.ContainsFunc(is.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
	a.addWrite(client, what+" "+is.Namespace+"/"+is.Name, write{pod: is, uid: uid, disrupts: target})
	out := is.DeepCopy()
	now := metav1.Now()
	out.DeletionTimestamp = &now
	a.putPod(out)
	writeObject(w, out)
}

// complete reports whether a deletion names the UID and the version of the pod.
func complete(p *metav1.Preconditions) bool {
	return p != nil && p.UID != nil && p.ResourceVersion != nil
}

func (a *api) deletePod(w http.ResponseWriter, r *http.Request, client, key string) {
	var o metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || !complete(o.Preconditions) {
		a.t.Errorf("delete pod %s: error %v, options %+v, want preconditions", key, err, o)
		return
	}
	a.change(func() {
		is := a.pods[key]
		switch {
		case is == nil:
			writeError(w, http.StatusNotFound, key)
		case is.UID != *o.Preconditions.UID, is.ResourceVersion != *o.Preconditions.ResourceVersion:
			writeError(w, http.StatusConflict, "uid or version")
		default:
			a.terminatePod(w, client, "delete", is, *o.Preconditions.UID)
		}
	})
}

func (a *api) evictPod(w http.ResponseWriter, r *http.Request, client, key string) {
	var e policyv1.Eviction
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil || e.DeleteOptions == nil || !complete(e.DeleteOptions.Preconditions) {
		a.t.Errorf("evict pod %s: error %v, want preconditions", key, err)
		return
	}
	a.change(func() {
		switch is := a.pods[key]; {
		case is == nil:
			writeError(w, http.StatusNotFound, key)
		case is.UID != *e.DeleteOptions.Preconditions.UID, is.ResourceVersion != *e.DeleteOptions.Preconditions.ResourceVersion:
			writeError(w, http.StatusConflict, "uid or version")
		case a.budget:
			a.counted["blocked eviction"]++
			if a.retryAfter {
				w.Header().Set("Retry-After", "10")
			}
			writeError(w, http.StatusTooManyRequests, "budget")
		default:
			a.terminatePod(w, client, "evict", is, is.UID)
		}
	})
}

func (a *api) lease(w http.ResponseWriter, r *http.Request, namespace string) {
	var l coordination.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
		a.t.Error(err)
		return
	}
	a.change(func() {
		is := a.leases[namespace+"/"+l.Name]
		if r.Method == "PUT" && (is == nil || is.ResourceVersion != l.ResourceVersion) || r.Method == "POST" && is != nil {
			writeError(w, http.StatusConflict, "modified")
			return
		}
		l.Namespace = namespace
		a.putLease(&l)
		writeObject(w, &l)
	})
}

func (a *api) event(w http.ResponseWriter, r *http.Request) {
	var e v1.Event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		a.t.Error(err)
		return
	}
	a.change(func() {
		a.events = append(a.events, &e)
		writeObject(w, &e)
	})
}

// writes returns the completed writes of the given verbs in order; without verbs, all.
func (a *api) writes(of ...string) (out []write) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.writeLog {
		verb, _, _ := strings.Cut(w.what, " ")
		if len(of) == 0 || slices.Contains(of, verb) {
			out = append(out, w)
		}
	}
	slices.SortStableFunc(out, func(a, b write) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	return out
}
