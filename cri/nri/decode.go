package nri

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"jettison/cri"
)

// Messages of nri v0.12.5 pkg/api/api.proto; later versions only add fields. Needed fields are
// decoded. Others (arguments, environment, mounts, hooks, seccomp) are skipped without a copy. A
// field with an unexpected type is malformed.

// errMalformed reports data that is not the expected protobuf message.
var errMalformed = errors.New("malformed message")

// Limits of decoded fields. A message is limited by maxMessage.
const (
	maxName       = 512     // of an ID, a name, a path
	maxValue      = 4 << 10 // of an annotation
	maxAnnotation = 64      // values of a unified map
)

// field is one field of a message: bytes for a string, bytes, a message or a map entry; value for a
// number.
type field struct {
	number protowire.Number
	bytes  []byte
	value  uint64
	isLen  bool
}

// each visits the fields of a message in order.
func each(b []byte, visit func(f field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		f := field{number: number}
		switch kind {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
			f.isLen = true
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
			f.number = 0 // fixed32, fixed64 and groups: no needed field has such a type
		}
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// string copies a string field.
func (f field) string(out *string, limit int) error {
	if !f.isLen {
		return errMalformed
	}
	if len(f.bytes) > limit {
		return fmt.Errorf("%w: field %d has %d bytes, more than %d", errMalformed, f.number, len(f.bytes),
			limit)
	}
	*out = string(f.bytes)
	return nil
}

// message visits the fields of a message field.
func (f field) message(visit func(f field) error) error {
	if !f.isLen {
		return errMalformed
	}
	return each(f.bytes, visit)
}

// optional reads an Optional message of the protocol: {value = 1}. A missing value is 0.
func (f field) optional() (v uint64, err error) {
	err = f.message(func(f field) error {
		if f.number == 1 {
			v = f.value
		}
		return nil
	})
	return v, err
}

// entry reads an entry of a map: {key = 1, value = 2}.
func (f field) entry() (key, value []byte, err error) {
	err = f.message(func(f field) error {
		switch f.number {
		case 1:
			key = f.bytes
		case 2:
			value = f.bytes
		}
		return nil
	})
	return key, value, err
}

// request is a ttrpc request.
type request struct {
	service, method string
	payload         []byte
}

func parseRequest(b []byte) (r request, err error) {
	err = each(b, func(f field) error {
		switch f.number {
		case 1:
			return f.string(&r.service, maxName)
		case 2:
			return f.string(&r.method, maxName)
		case 3:
			r.payload = f.bytes
		}
		return nil
	})
	return r, err
}

// parseResponse returns the error of a ttrpc response; nil: success.
func parseResponse(b []byte) error {
	code, text := uint64(0), ""
	err := each(b, func(f field) error {
		if f.number != 1 {
			return nil
		}
		return f.message(func(f field) error {
			switch f.number {
			case 1:
				code = f.value
			case 2:
				return f.string(&text, maxSend)
			}
			return nil
		})
	})
	if err == nil && code != 0 {
		err = fmt.Errorf("code %d: %.500q", code, text)
	}
	return err
}

// event holds the common fields of all requests about pods and containers.
type event struct {
	pod       cri.PodSandbox
	container cri.Container
	hasPod    bool
	hasCtr    bool
	daemonSet bool // the pod has the label of a DaemonSet's pods
}

// parseEvent reads a request: {pod = 1, container = 2}.
func parseEvent(b []byte) (e event, err error) {
	err = each(b, func(f field) (err error) {
		switch f.number {
		case 1:
			e.hasPod, e.daemonSet = true, ofDaemonSet(f)
			err = parsePod(f, &e.pod)
		case 2:
			e.hasCtr = true
			err = parseContainer(f, &e.container)
		}
		return err
	})
	return e, err
}

// daemonSetLabel is the label that only the DaemonSet controller sets on its pods
// (pkg/controller/daemon/util CreatePodTemplate, v1.37.2). A kubelet passes all labels of a pod to
// the runtime (pkg/kubelet/kuberuntime/labels.go newPodLabels).
const daemonSetLabel = "pod-template-generation"

// ofDaemonSet reports whether a PodSandbox belongs to a pod of a DaemonSet.
func ofDaemonSet(f field) (yes bool) {
	_ = f.message(func(f field) error { // malformed fields are skipped
		if f.number == 5 {
			key, _, _ := f.entry()
			yes = yes || string(key) == daemonSetLabel
		}
		return nil
	})
	return yes
}

// parseStateChange reads a StateChangeEvent, used by runtimes without a call for each event: {event
// = 1, pod = 2, container = 3}.
func parseStateChange(b []byte) (kind uint64, e event, err error) {
	err = each(b, func(f field) (err error) {
		switch f.number {
		case 1:
			kind = f.value
		case 2:
			e.hasPod, e.daemonSet = true, ofDaemonSet(f)
			err = parsePod(f, &e.pod)
		case 3:
			e.hasCtr = true
			err = parseContainer(f, &e.container)
		}
		return err
	})
	return kind, e, err
}

// parseSync reads a part of a SynchronizeRequest: {pods = 1, containers = 2, more = 3}. Malformed
// objects are skipped and counted.
func parseSync(b []byte, s *listing) (more bool, err error) {
	err = each(b, func(f field) error {
		switch f.number {
		case 1:
			var p cri.PodSandbox
			if err := parsePod(f, &p); err != nil || len(s.pods) >= maxPods {
				s.skipped++
				return nil
			}
			s.pods = append(s.pods, p)
		case 2:
			var c cri.Container
			if err := parseContainer(f, &c); err != nil || len(s.containers) >= maxContainers {
				s.skipped++
				return nil
			}
			s.containers = append(s.containers, c)
		case 3:
			more = f.value != 0
		}
		return nil
	})
	return more, err
}

// listing holds the objects of a Synchronize.
type listing struct {
	pods       []cri.PodSandbox
	containers []cri.Container
	skipped    uint64
}

// parsePod reads a PodSandbox.
func parsePod(f field, p *cri.PodSandbox) error {
	return f.message(func(f field) error {
		switch f.number {
		case 1:
			return f.string(&p.ID, maxName)
		case 2:
			return f.string(&p.Name, maxName)
		case 3:
			return f.string(&p.UID, maxName)
		case 4:
			return f.string(&p.Namespace, maxName)
		case 6:
			key, value, err := f.entry()
			if err == nil && len(key) <= maxName && len(value) <= maxValue &&
				cri.Keeps(key, len(p.Annotations)) {
				if p.Annotations == nil {
					p.Annotations = map[string]string{}
				}
				p.Annotations[string(key)] = string(value)
			}
			return err
		case 7:
			return f.string(&p.RuntimeHandler, maxName)
		case 8:
			return parseLinuxPod(f, p)
		case 9:
			if f.value <= maxPID {
				p.PID = int(f.value)
			}
		}
		return nil
	})
}

// maxPID is the largest PID of a 64-bit Linux (PID_MAX_LIMIT, include/linux/threads.h).
const maxPID = 4 << 20

// parseLinuxPod reads a LinuxPodSandbox: {pod_overhead = 1, pod_resources = 2, cgroup_parent = 3}.
func parseLinuxPod(f field, p *cri.PodSandbox) error {
	return f.message(func(f field) error {
		var r cri.Container
		switch f.number {
		case 1:
			err := parseResources(f, &r)
			if p.Overhead = r.MemoryLimit; p.Overhead == nil {
				p.Overhead = new(uint64)
			}
			return err
		case 2:
			err := parseResources(f, &r)
			p.CPUShares, p.MemoryLimit = r.CPUShares, r.MemoryLimit
			return err
		case 3:
			return f.string(&p.CgroupParent, maxName)
		}
		return nil
	})
}

// restartCountLabel is the annotation in which the kubelet stores the restart count
// (kuberuntime/labels.go).
const restartCountLabel = "io.kubernetes.container.restartCount"

// parseContainer reads a Container.
func parseContainer(f field, c *cri.Container) error {
	return f.message(func(f field) error {
		switch f.number {
		case 1:
			return f.string(&c.ID, maxName)
		case 2:
			return f.string(&c.SandboxID, maxName)
		case 3:
			return f.string(&c.Name, maxName)
		case 4:
			c.State = stateOf(f.value)
		case 6:
			key, value, err := f.entry()
			if string(key) == restartCountLabel {
				if n, err := strconv.ParseUint(string(value), 10, 32); err == nil {
					c.Attempt = uint32(n)
				}
			}
			return err
		case 11:
			return parseLinuxContainer(f, c)
		case 12:
			if f.value <= maxPID {
				c.PID = int(f.value)
			}
		case 14:
			c.CreatedAt = timeAt(f.value)
		case 15:
			c.StartedAt = timeAt(f.value)
		case 22:
			return parseImage(f, c)
		}
		return nil
	})
}

// timeAt converts nanoseconds since 1970; 0 and impossible values become the zero time.
func timeAt(nanoseconds uint64) time.Time {
	if nanoseconds == 0 || nanoseconds > math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, int64(nanoseconds))
}

// stateOf translates a ContainerState.
func stateOf(v uint64) cri.ContainerState {
	switch v {
	case 1:
		return cri.Created
	case 2, 3: // paused, running
		return cri.Running
	case 4:
		return cri.Exited
	}
	return cri.Unknown
}

func parseImage(f field, c *cri.Container) error {
	return f.message(func(f field) error {
		switch f.number {
		case 1:
			return f.string(&c.Image, maxValue)
		case 3: // digest of the image's config, the image ID of the CRI
			return f.string(&c.ImageID, maxValue)
		}
		return nil
	})
}

// parseLinuxContainer reads a LinuxContainer.
func parseLinuxContainer(f field, c *cri.Container) error {
	return f.message(func(f field) error {
		switch f.number {
		case 3:
			return parseResources(f, c)
		case 4:
			v, err := f.optional()
			if adj := int64(v); err == nil && adj >= -1000 && adj <= 1000 {
				c.OOMScoreAdj = &adj
			}
			return err
		}
		return nil
	})
}

// parseResources reads a LinuxResources, which replaces all resources of the container. A limit of
// 0 or less means no limit, as in package cri.
func parseResources(f field, c *cri.Container) error {
	c.MemoryLimit, c.CPUShares, c.Unified = nil, nil, nil
	first := func(f field, out **uint64) error {
		return f.message(func(f field) error {
			if f.number != 1 {
				return nil
			}
			v, err := f.optional()
			if n := int64(v); err == nil && n > 0 && n != math.MaxInt64 {
				*out = &v
			}
			return err
		})
	}
	return f.message(func(f field) error {
		switch f.number {
		case 1: // memory: its limit
			return first(f, &c.MemoryLimit)
		case 2: // CPU: its shares
			return first(f, &c.CPUShares)
		case 6:
			key, value, err := f.entry()
			if err == nil && len(key) <= maxName && len(value) <= maxName && len(c.Unified) < maxAnnotation {
				if c.Unified == nil {
					c.Unified = map[string]string{}
				}
				c.Unified[string(key)] = string(value)
			}
			return err
		}
		return nil
	})
}
