package manifests

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
	"jettison/stats/read"
)

// The kubelet's annotation for the source of a pod, and its values
// (pkg/kubelet/types/pod_update.go).
const (
	annotationSource = "kubernetes.io/config.source"
	sourceAPI        = "api"
	sourceFile       = "file"
)

// Bind returns pod objects for manifests with a pod in the runtime, by UID: copies of the manifests
// with the runtime's UID, namespace and name, and the annotation of static pods.
func Bind(manifests []*v1.Pod, index read.Index) map[string]*v1.Pod {
	out := Match(manifests, index)
	for uid, m := range out {
		out[uid] = Static(m, index[uid].PodRef)
	}
	return out
}

// Match returns the manifest of each pod of the runtime that has one, by the pod's UID.
//
// The UID of a static pod is a hash that only the kubelet computes, and its name is the manifest's
// name, "-", and the node's name (pkg/kubelet/config/common.go applyDefaults). So a manifest
// matches a pod with the same UID and a compatible name; else with the same namespace and name;
// else if the pod's source marks it as static, and its name is the manifest's name, "-", and a
// possible node name, which all static pods' names end with. If several manifests match, the
// longest name wins: "etcd-events-n1" does not belong to "etcd". A pod from an API server has no
// manifest, nor has a pod with a container that the manifest lacks. During an update a manifest may
// match two pods.
func Match(manifests []*v1.Pod, index read.Index) map[string]*v1.Pod {
	if len(manifests) == 0 {
		return nil
	}
	byUID := map[string]*v1.Pod{}
	byNamespace := map[string][]*v1.Pod{}
	for _, m := range manifests {
		if m.UID != "" {
			byUID[string(m.UID)] = m
		}
		byNamespace[m.Namespace] = append(byNamespace[m.Namespace], m)
	}
	for _, of := range byNamespace { // the longest name first
		slices.SortFunc(of, func(a, b *v1.Pod) int {
			return cmp.Or(cmp.Compare(len(b.Name), len(a.Name)), strings.Compare(a.Name, b.Name))
		})
	}
	var static []string // names
	for _, p := range index {
		if source, ok := p.Annotations[annotationSource]; ok && source != sourceAPI {
			static = append(static, p.PodRef.Name)
		}
	}
	out := map[string]*v1.Pod{}
	for uid, p := range index {
		if p.Annotations[annotationSource] == sourceAPI {
			continue
		}
		m := byUID[uid]
		if m == nil || !nameMatches(m, p) {
			m = byName(byNamespace[p.PodRef.Namespace], p, static)
		}
		if m != nil {
			out[uid] = m
		}
	}
	return out
}

// nameMatches reports whether a pod's name is compatible with a manifest, because any user may give a pod
// a UID.
func nameMatches(m *v1.Pod, p *read.Pod) bool {
	_, fromKubelet := p.Annotations[annotationSource]
	return p.PodRef.Namespace == m.Namespace && (p.PodRef.Name == m.Name || fromKubelet &&
		strings.HasPrefix(p.PodRef.Name, m.Name+"-"))
}

func byName(manifests []*v1.Pod, p *read.Pod, static []string) *v1.Pod {
	_, fromKubelet := p.Annotations[annotationSource]
	for _, m := range manifests {
		if !hasContainers(m, p) {
			continue
		}
		if p.PodRef.Name == m.Name {
			return m
		}
		node, ok := strings.CutPrefix(p.PodRef.Name, m.Name+"-")
		if !ok || !fromKubelet || node == "" {
			continue
		}
		if !slices.ContainsFunc(static,
			func(name string) bool { return !strings.HasSuffix(name, "-"+node) }) {
			return m
		}
	}
	return nil
}

// hasContainers reports whether the manifest has every container of the pod.
func hasContainers(m *v1.Pod, p *read.Pod) bool {
	for i := range p.Containers {
		named := func(c v1.Container) bool { return c.Name == p.Containers[i].Name }
		if !slices.ContainsFunc(m.Spec.Containers, named) && !slices.ContainsFunc(m.Spec.InitContainers,
			named) {
			return false
		}
	}
	return true
}

// Static returns a copy of a manifest as the object of the runtime's pod. It shares memory with the
// manifest, except the annotations and the quantities that are added up, as podjson.Trim does.
func Static(m *v1.Pod, ref stats.PodReference) *v1.Pod {
	copied := *m
	out := &copied
	out.Spec.Resources = m.Spec.Resources.DeepCopy()
	out.UID, out.Namespace, out.Name = types.UID(ref.UID), ref.Namespace, ref.Name
	out.Annotations = maps.Clone(out.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[annotationSource] = sourceFile
	return out
}
