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

// The kubelet's annotation for where it has a pod from (pkg/kubelet/types/pod_update.go).
const (
	annotationSource = "kubernetes.io/config.source"
	sourceAPI        = "api"
	sourceFile       = "file"
)

// Bind makes objects of manifests whose pods the runtime has, by UID: copies of the manifests with
// the UID, namespace and name that the runtime knows the pod by, and the annotation that says that
// it is static.
func Bind(manifests []*v1.Pod, index read.Index) map[string]*v1.Pod {
	out := Match(manifests, index)
	for uid, m := range out {
		out[uid] = Static(m, index[uid].PodRef)
	}
	return out
}

// Match finds the manifest of each pod of the runtime that has one, by the pod's UID.
//
// The UID of a static pod is a hash that only the kubelet computes, and its name is the manifest's
// with "-" and the node's name after it (pkg/kubelet/config/common.go applyDefaults). So a manifest
// is a pod's if it has that UID, and a name that fits; else if namespace and name are the same;
// else if the pod's source says that it is static and its name is the manifest's, "-", and what may
// be the node's name: all static pods' names end with it. Of several manifests the one with the
// longest name is meant: "etcd-events-n1" is not another "etcd". A pod that came from an API server
// has no manifest, nor has one with a container that the manifest has not. During an update a
// manifest may have two pods.
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
		if m == nil || !named(m, p) {
			m = byName(byNamespace[p.PodRef.Namespace], p, static)
		}
		if m != nil {
			out[uid] = m
		}
	}
	return out
}

// named reports whether a pod may be a manifest's by its name: anyone may give a pod a UID.
func named(m *v1.Pod, p *read.Pod) bool {
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

// Static is a copy of a manifest as the object of the pod that the runtime knows.
func Static(m *v1.Pod, ref stats.PodReference) *v1.Pod {
	out := m.DeepCopy()
	out.UID, out.Namespace, out.Name = types.UID(ref.UID), ref.Namespace, ref.Name
	out.Annotations = maps.Clone(out.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[annotationSource] = sourceFile
	return out
}
