package limits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"jettison/cgroup"
)

// Unit is a systemd slice with the values of its cgroup's files.
type Unit struct {
	Name  string // kubepods.slice
	Files map[cgroup.LimitFile]cgroup.Limit
	of    *slice
}

// Updater updates systemd's properties of units, and calls accepted for each unit that it updated.
type Updater func(ctx context.Context, units []Unit, accepted func(Unit)) error

// propertyOf maps files to systemd's properties (systemd.resource-control(5)).
var propertyOf = map[cgroup.LimitFile]string{
	cgroup.FileMemoryMin: "MemoryMin", cgroup.FileMemoryLow: "MemoryLow",
	cgroup.FileMemoryHigh: "MemoryHigh",
	cgroup.FileMemoryMax:  "MemoryMax", cgroup.FilePIDsMax: "TasksMax",
	cgroup.FileCPUWeight: "CPUWeight",
}

// tellLimit bounds an update of systemd.
const tellLimit = 5 * time.Second

// maxRefusals is the maximum number of rejected units in the error. A rejected unit does not
// prevent the update of others.
const maxRefusals = 4

// SystemdUpdater returns an Updater that sets the values of slices as systemd's properties until the
// next boot. Systemd rewrites all files of a slice at some events, and would reset values that it
// does not know. It is updated after the files are written: lowering memory.max may reclaim, which
// must not happen in process 1. All properties of a slice are set, because setting one makes
// systemd write all.
//
// systemd's socket is found below the host's root directory, because a container has another /run.
func SystemdUpdater(hostRoot string) Updater {
	return func(ctx context.Context, units []Unit, accepted func(Unit)) error {
		ctx, cancel := context.WithTimeout(ctx, tellLimit)
		defer cancel()
		conn, err := connect(ctx, hostRoot)
		if err != nil {
			return err
		}
		defer conn.Close()
		var errs []error
		for _, u := range units {
			err := conn.SetUnitPropertiesContext(ctx, u.Name, true, properties(u.Files)...)
			if err == nil {
				accepted(u)
				continue
			}
			if len(errs) < maxRefusals {
				errs = append(errs, fmt.Errorf("set properties of %s: %w", u.Name, err))
			}
			// not an answer of systemd: the other units would fail too
			if !errors.As(err, new(godbus.Error)) {
				break
			}
		}
		return errors.Join(errs...)
	}
}

// connect connects to the host's systemd: through its private socket, which only root may use, or
// through the bus if that fails.
func connect(ctx context.Context, hostRoot string) (*dbus.Conn, error) {
	own, err := dbus.NewConnection(func() (*godbus.Conn, error) {
		return dial(ctx, filepath.Join("/", hostRoot, "run/systemd/private"), false)
	})
	if err == nil {
		return own, nil
	}
	bus, busErr := dbus.NewConnection(func() (*godbus.Conn, error) {
		return dial(ctx, filepath.Join("/", hostRoot, "run/dbus/system_bus_socket"), true)
	})
	if busErr != nil {
		return nil, errors.Join(err, busErr)
	}
	return bus, nil
}

// dial connects to a socket and authenticates, until ctx ends. hello: the socket is a bus, which
// assigns names.
func dial(ctx context.Context, socket string, hello bool) (*godbus.Conn, error) {
	stream, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok { // the calls below have no context
		_ = stream.SetDeadline(deadline)
	}
	conn, err := godbus.NewConn(stream, godbus.WithContext(ctx))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", socket, err), stream.Close())
	}
	// The number, because a name would be resolved with a file of the container.
	if err = conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err == nil &&
		hello {
		err = conn.Hello()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	return conn, nil
}

// properties returns the values of files as systemd's properties, sorted by file.
func properties(files map[cgroup.LimitFile]cgroup.Limit) (out []dbus.Property) {
	for _, file := range slices.Sorted(maps.Keys(files)) {
		value := files[file].Bytes
		if files[file].Unlimited {
			value = math.MaxUint64 // "infinity"
		}
		// 0 is the weight of an idle group
		if name, ok := propertyOf[file]; ok && (file != cgroup.FileCPUWeight || value > 0) {
			out = append(out, dbus.Property{Name: name, Value: godbus.MakeVariant(value)})
		}
	}
	return out
}
