/* A libnvidia-ml of eight GPUs for benchmarks: each call answers, and burns CPU time first.
 *
 * Signatures and structures are those of nvml.h, for the functions that telemetry calls. A real
 * driver spends its calls in the kernel, mostly reading registers: CPU time all the same. The time
 * of a call is set by played_cost(ns), or by NVML_PLAYED_COST_NS for a program that takes this
 * library for the driver's; that of nvmlDeviceGetFieldValues is per field.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SUCCESS 0
#define INVALID 2
#define NOT_SUPPORTED 3
#define GPUS 8

typedef struct { unsigned int fieldId, scopeId; int64_t timestamp, latencyUsec;
                 int valueType, nvmlReturn; union { double d; unsigned int ui; uint64_t ull; } value; } Field;
typedef struct { unsigned int metricId; int nvmlReturn; double value;
                 const char *shortName, *longName, *unit; } Metric;
typedef struct { unsigned int version, numMetrics; void *sample1, *sample2; Metric metrics[]; } Asked;

static long cost_ns = 0;
static uint64_t ticks = 0;

void played_cost(long ns) { cost_ns = ns; }

__attribute__((constructor)) static void begin(void) {
    const char *cost = getenv("NVML_PLAYED_COST_NS");
    if (cost) cost_ns = atol(cost);
}

static void burn(int times) {
    struct timespec begun, now;
    if (!cost_ns) return;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < cost_ns * times);
}

static int gpu_of(void *device) { return (int)(intptr_t)device - 1; }

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "an error"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = GPUS; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    if (index >= GPUS) return INVALID;
    *device = (void *)(intptr_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    if (length < 8) return INVALID;
    memcpy(uuid, "GPU-0", 6);
    uuid[4] = (char)('0' + gpu_of(device));
    return SUCCESS;
}

int nvmlDeviceGetIndex(void *device, unsigned int *index) {
    *index = (unsigned int)gpu_of(device);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
    (void)device;
    strncpy(name, "NVIDIA H100 80GB HBM3", length);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *now, unsigned int *next) {
    (void)device; (void)now; (void)next;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(void *device, uint64_t *memory) {
    (void)device;
    burn(1);
    memory[0] = 85899345920ULL; memory[1] = 8589934592ULL; memory[2] = 77309411328ULL;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned int *rates) {
    (void)device;
    burn(1);
    rates[0] = 97; rates[1] = 41;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, uint64_t *reasons) {
    (void)device;
    burn(1);
    *reasons = 4;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned int *mhz) {
    (void)device;
    burn(1);
    *mhz = kind == 1 ? 1980 : 2619;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int kind, unsigned int *degrees) {
    (void)device; (void)kind;
    burn(1);
    *degrees = 61;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, void *processes) {
    (void)device; (void)processes;
    burn(1);
    *count = 0;
    return SUCCESS;
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned int *count, void *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

int nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    (void)device;
    burn(count);
    for (int place = 0; place < count; place++) {
        Field *field = &fields[place];
        field->nvmlReturn = SUCCESS;
        field->valueType = 3;
        switch (field->fieldId) {
        case 91: field->value.ull = 18; break;
        case 90: field->value.ull = 26562; break;
        case 190: field->value.ull = 700000; break;
        case 186: field->value.ull = 572191; break;
        default: field->value.ull = ++ticks; break;
        }
    }
    return SUCCESS;
}

int nvmlGpmQueryDeviceSupport(void *device, unsigned int *support) {
    (void)device;
    support[1] = 1;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(void **sample) { *sample = malloc(64); return *sample ? SUCCESS : INVALID; }
int nvmlGpmSampleFree(void *sample) { free(sample); return SUCCESS; }

int nvmlGpmSampleGet(void *device, void *sample) {
    (void)device; (void)sample;
    burn(1);
    return SUCCESS;
}

int nvmlGpmMetricsGet(Asked *asked) {
    burn(1);
    for (unsigned int place = 0; place < asked->numMetrics; place++) {
        asked->metrics[place].nvmlReturn = SUCCESS;
        asked->metrics[place].value = 50.0;
    }
    return SUCCESS;
}
