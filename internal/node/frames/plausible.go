package frames

import (
	"reflect"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/stats"
)

// removeImplausible removes implausible figures, so that a broken counter does not make a whole
// Summary or recording unusable. The decision core also treats such figures as absent.
func removeImplausible(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if implausible(v.Elem()) {
			v.SetZero()
			return
		}
		removeImplausible(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				removeImplausible(f)
			}
		}
		switch s := v.Addr().Interface().(type) {
		case *v1alpha1.MemoryStats:
			dropSum(&s.AvailableBytes, s.WorkingSetBytes)
		case *v1alpha1.SwapStats:
			dropSum(&s.SwapAvailableBytes, s.SwapUsageBytes)
		}
	case reflect.Slice:
		if k := v.Type().Elem().Kind(); k == reflect.Struct || k == reflect.Pointer {
			for i := range v.Len() {
				removeImplausible(v.Index(i))
			}
		}
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.Pointer { // only pointed-to values can be modified
			for i := v.MapRange(); i.Next(); {
				removeImplausible(i.Value().Elem())
			}
		}
	}
}

// dropSum removes *left if the sum of left and used is implausible.
func dropSum(left **uint64, used *uint64) {
	if *left != nil && used != nil && stats.SaturatingAdd(**left, *used) > maxPlausible {
		*left = nil
	}
}

// implausible reports whether a pointer's target is implausible: a number, or a struct with such a
// number.
func implausible(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Uint64:
		return v.Uint() > maxPlausible
	case reflect.Int64:
		return v.Int() < 0
	case reflect.Float64: // a share
		return !(v.Float() >= 0 && v.Float() <= 1)
	case reflect.Struct:
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Uint64:
				if f.Uint() > maxPlausible {
					return true
				}
			case reflect.Struct: // pressure
				if f.NumField() == 4 && f.Field(1).Kind() == reflect.Float64 && implausiblePressure(f) {
					return true
				}
			}
		}
	}
	return false
}

// implausiblePressure reports an implausible total, or an average that is no percentage
// (v1alpha1.PSIData).
func implausiblePressure(v reflect.Value) bool {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Uint64:
			if f.Uint() > maxPlausible {
				return true
			}
		case reflect.Float64:
			if !(f.Float() >= 0 && f.Float() <= 100) {
				return true
			}
		}
	}
	return false
}
