package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// UID returns the UID of a pod whose manifest has none. It depends on nothing else of the manifest,
// so that no edit, file name or upgrade makes it another pod. node is the stored name of the node.
func UID(namespace, name, node string) types.UID {
	// NUL is part of no name.
	sum := sha256.Sum256([]byte("jettison pod\x00" + namespace + "\x00" + name + "\x00" + node))
	sum[6] = sum[6]&0x0f | 0x80 // version 8 of RFC 9562: of the application
	sum[8] = sum[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}

// nodeName returns a pod's name on a node, as the kubelet forms it.
func nodeName(name, node string) string { return name + "-" + strings.ToLower(node) }

// The kubelet's annotations of a static pod (pkg/kubelet/types/pod_update.go).
const (
	annotationHash   = "kubernetes.io/config.hash"
	annotationSource = "kubernetes.io/config.source"
)

// Bind returns the pod as it runs on a node, as the kubelet changes a static pod
// (pkg/kubelet/config/common.go applyDefaults).
func Bind(p *v1.Pod, uid types.UID, node string) *v1.Pod {
	out := p.DeepCopy()
	out.UID, out.Name, out.Spec.NodeName = uid, nodeName(p.Name, node), node
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[annotationHash], out.Annotations[annotationSource] = string(uid), "file"
	always := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	i := slices.IndexFunc(out.Spec.Tolerations, func(t v1.Toleration) bool {
		t.TolerationSeconds = nil
		return t == always
	})
	if i >= 0 {
		out.Spec.Tolerations[i] = always
	} else {
		out.Spec.Tolerations = append(out.Spec.Tolerations, always)
	}
	out.Status = v1.PodStatus{Phase: v1.PodPending}
	return out
}

// hash identifies the content of an object: labels, annotations, and all that it does. It is the
// same for a default that is written out and one that is not, and does not change with an upgrade
// that adds fields and defaults. The name and the UID are not part of it.
func hash(o *Object) string {
	var content any
	switch {
	case o.Pod != nil:
		p := o.Pod.DeepCopy()
		removeDefaults(p)
		normalize(p)
		content = []any{p.Labels, p.Annotations, p.Spec}
	case o.ConfigMap != nil:
		c := o.ConfigMap
		content = []any{c.Labels, c.Annotations, c.Data, c.BinaryData, c.Immutable}
	default:
		s := o.Secret
		content = []any{s.Labels, s.Annotations, s.Data, s.Type, s.Immutable}
	}
	sum := sha256.Sum256(withoutEmpty(content))
	return hex.EncodeToString(sum[:16])
}

// normalize gives equal amounts the same text: 1Gi, 1024Mi and 1073741824.
func normalize(p *v1.Pod) {
	lists := []*v1.ResourceRequirements{p.Spec.Resources}
	for c := range containersOf(&p.Spec) {
		lists = append(lists, &c.Resources)
	}
	for _, r := range lists {
		if r == nil {
			continue
		}
		for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
			for name, value := range list {
				list[name] = *resource.NewDecimalQuantity(*value.AsDec(), resource.DecimalSI)
			}
		}
	}
}

// withoutEmpty returns the JSON of a value without empty objects and lists in objects: types differ
// in which of their absent fields they write, and new fields come with upgrades.
func withoutEmpty(value any) []byte {
	text, err := json.Marshal(value)
	var tree any
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // a float64 would change large numbers
		err = d.Decode(&tree)
	}
	if err == nil {
		text, err = json.Marshal(prune(tree))
	}
	if err != nil {
		panic(fmt.Sprintf("encode a decoded object: %v", err)) // these types have no such values
	}
	return text
}

// prune removes null, {} and [] from objects, innermost first.
func prune(tree any) any {
	switch t := tree.(type) {
	case map[string]any:
		for key, value := range t {
			value = prune(value)
			object, isObject := value.(map[string]any)
			list, isList := value.([]any)
			if value == nil || isObject && len(object) == 0 || isList && len(list) == 0 {
				delete(t, key)
			} else {
				t[key] = value
			}
		}
	case []any:
		for i := range t {
			t[i] = prune(t[i])
		}
	}
	return tree
}
