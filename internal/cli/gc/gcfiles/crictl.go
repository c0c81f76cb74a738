package gcfiles

import (
	"fmt"
	"time"

	"jettison/internal/base/strict"
	"jettison/reclaim"
	"jettison/stats"
)

// The types below are the used parts of CRI messages as crictl prints them (protojson): names in
// camel case, enumerations by name, 64-bit numbers as text.

type metadata struct {
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Attempt   number `json:"attempt"`
}

type imageSpec struct {
	Image              string `json:"image"`
	UserSpecifiedImage string `json:"userSpecifiedImage"`
}

type container struct {
	ID           string            `json:"id"`
	PodSandboxID string            `json:"podSandboxId"`
	Metadata     *metadata         `json:"metadata"`
	Image        *imageSpec        `json:"image"`
	ImageRef     string            `json:"imageRef"`
	ImageID      string            `json:"imageId"`
	State        string            `json:"state"`
	CreatedAt    *created          `json:"createdAt"` // nanoseconds since 1970
	Labels       map[string]string `json:"labels"`
}

// uidLabel is the label in which a kubelet stores the pod UID of a container
// (pkg/kubelet/types/labels.go).
const uidLabel = "io.kubernetes.pod.uid"

var containerStates = map[string]reclaim.ContainerState{
	"CONTAINER_CREATED": reclaim.Created, "CONTAINER_RUNNING": reclaim.Running,
	"CONTAINER_EXITED": reclaim.Exited, "CONTAINER_UNKNOWN": reclaim.Unknown,
}

// parseContainers parses {"containers": [...]}.
func parseContainers(n *Node, text []byte) error {
	var file struct {
		Containers *[]container `json:"containers"`
	}
	if err := unmarshal(text, &file, false); err != nil {
		return err
	}
	if file.Containers == nil {
		return strict.NewFieldError("containers", "missing: want the output of crictl ps -a -o json")
	}
	ids := make(unique, len(*file.Containers))
	n.Look.Containers = make([]reclaim.Container, 0, len(*file.Containers))
	for i := range *file.Containers {
		c := &(*file.Containers)[i]
		field := func(name string) string { return fmt.Sprintf("containers[%d].%s", i, name) }
		if err := ids.add(field("id"), c.ID); err != nil {
			return err
		}
		state, ok := containerStates[c.State]
		if !ok {
			return wrongState(field("state"), c.State,
				"CONTAINER_CREATED, CONTAINER_RUNNING, CONTAINER_EXITED or CONTAINER_UNKNOWN")
		}
		if c.Metadata == nil || c.Metadata.Name == "" {
			return strict.NewFieldError(field("metadata.name"), "missing")
		}
		created, err := createdAt(field("createdAt"), c.CreatedAt)
		if err != nil {
			return err
		}
		out := reclaim.Container{ID: c.ID, SandboxID: c.PodSandboxID, PodUID: c.Labels[uidLabel],
			Name:    c.Metadata.Name,
			Attempt: c.Metadata.Attempt.attempt(), State: state, CreatedAt: created}
		refs := [...]string{c.ImageID, c.ImageRef, "", ""}
		if c.Image != nil {
			refs[2], refs[3] = c.Image.Image, c.Image.UserSpecifiedImage
		}
		for i, ref := range refs {
			if ref != "" && (i == 0 || ref != refs[i-1]) {
				out.Images = append(out.Images, ref)
			}
		}
		n.Look.Containers = append(n.Look.Containers, out)
	}
	return nil
}

type sandbox struct {
	ID        string    `json:"id"`
	Metadata  *metadata `json:"metadata"`
	State     string    `json:"state"`
	CreatedAt *created  `json:"createdAt"`
}

// parseSandboxes parses {"items": [...]}.
func parseSandboxes(n *Node, text []byte) error {
	var file struct {
		Items *[]sandbox `json:"items"`
	}
	if err := unmarshal(text, &file, false); err != nil {
		return err
	}
	if file.Items == nil {
		return strict.NewFieldError("items", "missing: want the output of crictl pods -o json")
	}
	ids := make(unique, len(*file.Items))
	n.Look.Sandboxes = make([]reclaim.Sandbox, 0, len(*file.Items))
	for i := range *file.Items {
		s := &(*file.Items)[i]
		field := func(name string) string { return fmt.Sprintf("items[%d].%s", i, name) }
		if err := ids.add(field("id"), s.ID); err != nil {
			return err
		}
		if s.State != "SANDBOX_READY" && s.State != "SANDBOX_NOTREADY" {
			return wrongState(field("state"), s.State, "SANDBOX_READY or SANDBOX_NOTREADY")
		}
		if s.Metadata == nil {
			return strict.NewFieldError(field("metadata"), "missing")
		}
		created, err := createdAt(field("createdAt"), s.CreatedAt)
		if err != nil {
			return err
		}
		m := s.Metadata
		n.Look.Sandboxes = append(n.Look.Sandboxes, reclaim.Sandbox{ID: s.ID, PodUID: m.UID,
			Namespace: m.Namespace, Name: m.Name,
			Attempt: m.Attempt.attempt(), NotReady: s.State == "SANDBOX_NOTREADY", CreatedAt: created})
	}
	return nil
}

type image struct {
	ID          string   `json:"id"`
	RepoTags    []string `json:"repoTags"`
	RepoDigests []string `json:"repoDigests"`
	Size        *number  `json:"size"`
	Pinned      bool     `json:"pinned"`
	Spec        *struct {
		RuntimeHandler string `json:"runtimeHandler"`
	} `json:"spec"`
}

// parseImages parses {"images": [...]}. An ID may occur once for each runtime handler.
func parseImages(n *Node, text []byte) error {
	var file struct {
		Images *[]image `json:"images"`
	}
	if err := unmarshal(text, &file, false); err != nil {
		return err
	}
	if file.Images == nil {
		return strict.NewFieldError("images", "missing: want the output of crictl images -o json")
	}
	n.Look.Images = make([]reclaim.Image, 0, len(*file.Images))
	for i := range *file.Images {
		in := &(*file.Images)[i]
		if in.ID == "" {
			return strict.NewFieldError(fmt.Sprintf("images[%d].id", i), "missing")
		}
		out := reclaim.Image{ID: in.ID, Names: append(in.RepoTags, in.RepoDigests...), Pinned: in.Pinned}
		if in.Spec != nil {
			out.RuntimeHandler = in.Spec.RuntimeHandler
		}
		if in.Size != nil {
			out.Bytes = stats.Some(uint64(*in.Size))
		}
		n.Look.Images = append(n.Look.Images, out)
	}
	return nil
}

// createdAt returns a creation time; zero if the runtime does not know it: crictl then prints 0, or
// Go's zero time in nanoseconds.
func createdAt(field string, nanoseconds *created) (time.Time, error) {
	switch {
	case nanoseconds == nil:
		return time.Time{}, strict.NewFieldError(field, "missing")
	case *nanoseconds == 0:
		return time.Time{}, nil
	}
	return time.Unix(0, int64(*nanoseconds)), nil
}

func wrongState(field, got, want string) error {
	if got == "" {
		return strict.NewFieldError(field, "missing")
	}
	return strict.NewFieldError(field, fmt.Sprintf("%.40q is not %s", got, want))
}

// unique is the set of IDs of a list.
type unique map[string]struct{}

func (u unique) add(field, id string) error {
	if id == "" {
		return strict.NewFieldError(field, "missing")
	}
	if _, ok := u[id]; ok {
		return strict.NewFieldError(field, fmt.Sprintf("duplicate ID %.80q", id))
	}
	u[id] = struct{}{}
	return nil
}
