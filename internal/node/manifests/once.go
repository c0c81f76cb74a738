package manifests

import (
	"cmp"
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Once reads all manifests once, within limit. doubt is the reason why manifests may be missing;
// empty: complete.
func Once(ctx context.Context, path string, limit time.Duration) (all []*v1.Pod, doubt string) {
	first := make(chan []*v1.Pod, 1)
	wrong := make(chan error, 1)
	reader := Start(Options{
		Path: path,
		Changed: func(all []*v1.Pod) {
			select {
			case first <- all:
			default:
			}
		},
		Report: func(err error) {
			select {
			case wrong <- err:
			default:
			}
		},
	})
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case all = <-first:
	case <-timer.C:
		doubt = "file system not responding"
	case <-ctx.Done():
		doubt = ctx.Err().Error()
	}
	if err := reader.Close(); err != nil {
		doubt = cmp.Or(doubt, err.Error())
	}
	select {
	case err := <-wrong:
		doubt = cmp.Or(doubt, err.Error())
	default:
	}
	return all, doubt
}
