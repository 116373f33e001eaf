/* A libnvidia-ml.so.1 that answers what a text file says: an independent witness of the ABI.
 *
 * Structs and signatures are written from NVIDIA's documentation of NVML, not taken from pynvml, so that a wrong
 * offset on either side shows. -DDRIVER=<branch> leaves out what that branch did not export.
 *
 * NVML_WITNESS names the file. Each line is `<gpu> <question> <code> <value>...`; `*` stands for every GPU. A question
 * is a function's name, with `:<argument>` where it has one that matters, `field:<id>[:<scope>]`, or `count`. What no
 * line speaks of is NOT_SUPPORTED. The code -1 stands for a call that does not return. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DRIVER
#define DRIVER 580
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { int gpu; } *Device;

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, VERSION_MISMATCH = 25 };
enum { MOST_LINES = 2000, MOST_VALUES = 40, MOST_GPUS = 64, HANGS = -1, EVERY = -1 };

static struct line {
    int gpu, code, many;
    char question[80], text[128];
    long double values[MOST_VALUES];
} lines[MOST_LINES];
static int known;
static struct { int gpu; } gpus[MOST_GPUS];

static void read_lines(void)
{
    char row[1024], gpu[8];
    FILE *file = fopen(getenv("NVML_WITNESS"), "r");
    while (file && known < MOST_LINES && fgets(row, sizeof row, file)) {
        struct line *line = &lines[known];
        int used = 0;
        if (sscanf(row, "%7s %79s %d %n", gpu, line->question, &line->code, &used) < 3)
            continue;
        line->gpu = *gpu == '*' ? EVERY : atoi(gpu);
        snprintf(line->text, sizeof line->text, "%.*s", (int)strcspn(row + used, "\n"), row + used);
        for (char *rest = row + used, *end; line->many < MOST_VALUES; rest = end) {
            line->values[line->many] = strtold(rest, &end);
            if (end == rest)
                break;
            line->many++;
        }
        known++;
    }
    if (file)
        fclose(file);
}

static struct line *find(Device device, const char *question)
{
    int gpu = device ? device->gpu : 0;
    for (int i = 0; i < known; i++)
        if ((lines[i].gpu == EVERY || lines[i].gpu == gpu) && !strcmp(lines[i].question, question)) {
            while (lines[i].code == HANGS)
                pause();
            return &lines[i];
        }
    return NULL;
}

static struct line *picked(Device device, const char *function, u64 argument)
{
    char question[80];
    snprintf(question, sizeof question, "%s:%llu", function, argument);
    return find(device, question);
}

static int code_of(struct line *line) { return line ? line->code : NOT_SUPPORTED; }
static u64 value(struct line *line, int n) { return (u64)line->values[n]; }

#define ANSWER(found, give)            \
    struct line *l = (found);          \
    if (code_of(l) == SUCCESS) { give; } \
    return code_of(l);
#define U32(name) int name(Device d, u32 *a) { ANSWER(find(d, #name), *a = value(l, 0)) }
#define U64(name) int name(Device d, u64 *a) { ANSWER(find(d, #name), *a = value(l, 0)) }
#define PAIR(name) int name(Device d, u32 *a, u32 *b) { ANSWER(find(d, #name), *a = value(l, 0); *b = value(l, 1)) }
#define PICK(name) int name(Device d, u32 k, u32 *a) { ANSWER(picked(d, #name, k), *a = value(l, 0)) }
#define TEXT(name) int name(Device d, char *t, u32 n) { ANSWER(find(d, #name), snprintf(t, n, "%s", l->text)) }
#define SYSTEM(name) int name(char *t, u32 n) { ANSWER(find(NULL, #name), snprintf(t, n, "%s", l->text)) }

int nvmlInitWithFlags(u32 flags)
{
    known = 0;
    memset(lines, 0, sizeof lines);
    read_lines();
    for (int i = 0; i < MOST_GPUS; i++)
        gpus[i].gpu = i;
    struct line *line = find(NULL, "nvmlInitWithFlags");
    return line ? line->code : SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return "an error"; }
SYSTEM(nvmlSystemGetDriverVersion)
SYSTEM(nvmlSystemGetNVMLVersion)
int nvmlSystemGetCudaDriverVersion_v2(int *v) { ANSWER(find(NULL, "nvmlSystemGetCudaDriverVersion_v2"), *v = value(l, 0)) }
int nvmlDeviceGetCount_v2(u32 *count) { ANSWER(find(NULL, "count"), *count = value(l, 0)) }

int nvmlDeviceGetHandleByIndex_v2(u32 index, Device *device)
{
    if (index >= MOST_GPUS)
        return INVALID_ARGUMENT;
    *device = (Device)&gpus[index];
    struct line *line = find(*device, "nvmlDeviceGetHandleByIndex_v2");
    return line ? line->code : SUCCESS;
}

/* Identity */
TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetVbiosVersion)
TEXT(nvmlDeviceGetBoardPartNumber)
U32(nvmlDeviceGetArchitecture)
PAIR(nvmlDeviceGetCudaComputeCapability)
U32(nvmlDeviceGetBusType)

struct pci { char legacy[16]; u32 domain, bus, device, pci_device, pci_subsystem; char id[32]; };

static int fill_pci(struct line *line, struct pci *pci)
{
    if (code_of(line) == SUCCESS) {
        memset(pci, 0, sizeof *pci);
        sscanf(line->text, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
        snprintf(pci->id, sizeof pci->id, "%.31s", line->text);
        snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF, pci->device & 0x1F);
    }
    return code_of(line);
}

int nvmlDeviceGetPciInfo_v3(Device d, struct pci *pci) { return fill_pci(find(d, "nvmlDeviceGetPciInfo_v3"), pci); }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, u32 k, struct pci *pci)
{
    return fill_pci(picked(d, "nvmlDeviceGetNvLinkRemotePciInfo_v2", k), pci);
}

/* Work, power, heat */
PAIR(nvmlDeviceGetEncoderUtilization)
PAIR(nvmlDeviceGetDecoderUtilization)
U32(nvmlDeviceGetPerformanceState)
U32(nvmlDeviceGetPowerUsage)
U32(nvmlDeviceGetEnforcedPowerLimit)
U32(nvmlDeviceGetPowerManagementDefaultLimit)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints)
U64(nvmlDeviceGetTotalEnergyConsumption)
PICK(nvmlDeviceGetClockInfo)
PICK(nvmlDeviceGetMaxClockInfo)
PICK(nvmlDeviceGetApplicationsClock)
PICK(nvmlDeviceGetDefaultApplicationsClock)
PICK(nvmlDeviceGetTemperature)
PICK(nvmlDeviceGetTemperatureThreshold)
U64(nvmlDeviceGetCurrentClocksThrottleReasons)
U64(nvmlDeviceGetSupportedClocksThrottleReasons)
U32(nvmlDeviceGetFanSpeed)
PICK(nvmlDeviceGetFanSpeed_v2)
#if DRIVER >= 510
U32(nvmlDeviceGetNumFans)
#endif
#if DRIVER >= 535
U64(nvmlDeviceGetCurrentClocksEventReasons)
U64(nvmlDeviceGetSupportedClocksEventReasons)
#endif

struct utilization { u32 gpu, memory; };
int nvmlDeviceGetUtilizationRates(Device d, struct utilization *u)
{
    ANSWER(find(d, "nvmlDeviceGetUtilizationRates"), u->gpu = value(l, 0); u->memory = value(l, 1))
}

#if DRIVER >= 570
struct temperature { u32 version, sensor; int celsius; };
int nvmlDeviceGetTemperatureV(Device d, struct temperature *t)
{
    if (t->version != (sizeof *t | 1 << 24))
        return VERSION_MISMATCH;
    ANSWER(picked(d, "nvmlDeviceGetTemperature", t->sensor), t->celsius = (int)l->values[0])
}

struct margin { u32 version; int celsius; };
int nvmlDeviceGetMarginTemperature(Device d, struct margin *m)
{
    if (m->version != (sizeof *m | 1 << 24))
        return VERSION_MISMATCH;
    ANSWER(find(d, "nvmlDeviceGetMarginTemperature"), m->celsius = (int)l->values[0])
}
#endif

/* Memory: total, reserved, free, used */
struct memory { u64 total, free, used; };
int nvmlDeviceGetMemoryInfo(Device d, struct memory *m)
{
    ANSWER(find(d, "memory"), m->total = value(l, 0); m->free = value(l, 2); m->used = value(l, 1) + value(l, 3))
}

#if DRIVER >= 510
struct memory_v2 { u32 version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(Device d, struct memory_v2 *m)
{
    if (m->version != (sizeof *m | 2 << 24))
        return VERSION_MISMATCH;
    ANSWER(find(d, "memory"), m->total = value(l, 0); m->reserved = value(l, 1); m->free = value(l, 2); m->used = value(l, 3))
}
#endif

struct bar1 { u64 total, free, used; };
int nvmlDeviceGetBAR1MemoryInfo(Device d, struct bar1 *b)
{
    ANSWER(find(d, "bar1"), b->total = value(l, 0); b->free = value(l, 1); b->used = value(l, 2))
}

/* Health */
PAIR(nvmlDeviceGetEccMode)
U32(nvmlDeviceGetRetiredPagesPendingStatus)
U32(nvmlDeviceGetPersistenceMode)
U32(nvmlDeviceGetComputeMode)
PAIR(nvmlDeviceGetMigMode)
U32(nvmlDeviceGetMaxMigDeviceCount)
U32(nvmlDeviceGetPcieReplayCounter)

int nvmlDeviceGetTotalEccErrors(Device d, u32 kind, u32 counter, u64 *errors)
{
    ANSWER(picked(d, "nvmlDeviceGetTotalEccErrors", kind * 10 + counter), *errors = value(l, 0))
}

int nvmlDeviceGetRemappedRows(Device d, u32 *correctable, u32 *uncorrectable, u32 *pending, u32 *failed)
{
    ANSWER(find(d, "nvmlDeviceGetRemappedRows"), *correctable = value(l, 0); *uncorrectable = value(l, 1);
           *pending = value(l, 2); *failed = value(l, 3))
}

struct histogram { u32 max, high, partial, low, none; };
int nvmlDeviceGetRowRemapperHistogram(Device d, struct histogram *h)
{
    ANSWER(find(d, "nvmlDeviceGetRowRemapperHistogram"), h->max = value(l, 0); h->high = value(l, 1);
           h->partial = value(l, 2); h->low = value(l, 3); h->none = value(l, 4))
}

int nvmlDeviceGetRetiredPages(Device d, u32 cause, u32 *count, u64 *addresses)
{
    struct line *line = picked(d, "nvmlDeviceGetRetiredPages", cause);
    u32 room = *count;
    if (code_of(line) != SUCCESS)
        return code_of(line);
    *count = line->many;
    if (!line->many)
        return SUCCESS;
    if (!addresses || room < (u32)line->many)
        return INSUFFICIENT_SIZE;
    for (int i = 0; i < line->many; i++)
        addresses[i] = value(line, i);
    return SUCCESS;
}

#if DRIVER >= 535
struct fabric { u32 version; unsigned char cluster[16]; int status; u32 clique; unsigned char state; u32 mask; unsigned char summary; };
struct fabric_v2 { u32 version; unsigned char cluster[16]; int status; u32 clique; unsigned char state; u32 mask; };
int nvmlDeviceGetGpuFabricInfoV(Device d, struct fabric *f)
{
    int latest = f->version == (sizeof *f | 3 << 24) && DRIVER >= 570;
    if (!latest && f->version != (sizeof(struct fabric_v2) | 2 << 24))
        return VERSION_MISMATCH;
    ANSWER(find(d, "fabric"), f->state = value(l, 0); f->status = (int)value(l, 1); f->mask = value(l, 2);
           if (latest) f->summary = value(l, 3))
}
#endif

/* Links */
U32(nvmlDeviceGetCurrPcieLinkGeneration)
U32(nvmlDeviceGetCurrPcieLinkWidth)
U32(nvmlDeviceGetMaxPcieLinkGeneration)
U32(nvmlDeviceGetMaxPcieLinkWidth)
#if DRIVER >= 525
U32(nvmlDeviceGetGpuMaxPcieLinkGeneration)
#endif
PICK(nvmlDeviceGetNvLinkState)

int nvmlDeviceGetP2PStatus(Device d, Device peer, int capability, u32 *status)
{
    ANSWER(picked(d, "nvmlDeviceGetP2PStatus", capability), *status = value(l, 0))
}

int nvmlDeviceGetTopologyCommonAncestor(Device d, Device peer, u32 *level)
{
    ANSWER(find(d, "nvmlDeviceGetTopologyCommonAncestor"), *level = value(l, 0))
}

/* Fields: each line is `field:<id>[:<scope>] <code> <value type> <value>` */
struct field {
    u32 id, scope;
    long long at, latency;
    u32 type;
    int code;
    union { double d; u32 ui; unsigned long ul; u64 ull; long long sll; int si; unsigned short us; } value;
};

static void fill_field(struct line *line, struct field *field)
{
    long double v = line->values[1];
    field->type = (u32)line->values[0];
    switch (field->type) {
    case 0: field->value.d = (double)v; break;
    case 1: field->value.ui = (u32)v; break;
    case 2: field->value.ul = (unsigned long)v; break;
    case 3: field->value.ull = (u64)v; break;
    case 4: field->value.sll = (long long)v; break;
    case 5: field->value.si = (int)v; break;
    case 6: field->value.us = (unsigned short)v; break;
    }
}

int nvmlDeviceGetFieldValues(Device d, int count, struct field *fields)
{
    int answered = 0;
    if (!d || !fields || count < 1)
        return INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        char question[80];
        snprintf(question, sizeof question, "field:%u:%u", fields[i].id, fields[i].scope);
        struct line *line = find(d, question);
        if (!line && !fields[i].scope)
            line = picked(d, "field", fields[i].id);
        memset(&fields[i].value, 0xA5, sizeof fields[i].value);
        fields[i].code = code_of(line);
        if (line && line->code == SUCCESS) {
            fill_field(line, &fields[i]);
            answered++;
        }
    }
    struct line *strict = find(d, "fields-strict");
    return answered || !strict ? SUCCESS : strict->code;
}

/* Processes: each line is `<function without version> <code> (<pid> <bytes>)...` */
struct process { u32 pid; u64 used; u32 gi, ci; };
struct wide_process { u32 pid; u64 used; u32 gi, ci; u64 protected; };

static int list(Device d, const char *function, u32 *count, char *out, int wide)
{
    struct line *line = find(d, function);
    u32 room = *count;
    if (code_of(line) != SUCCESS)
        return code_of(line);
    *count = line->many / 2;
    if (!*count)
        return SUCCESS;
    if (!out || room < *count)
        return INSUFFICIENT_SIZE;
    for (u32 i = 0; i < *count; i++) {
        struct wide_process entry = { (u32)value(line, 2 * i), value(line, 2 * i + 1), ~0u, ~0u, 0 };
        memcpy(out, &entry, wide ? sizeof entry : sizeof(struct process));
        out += wide ? sizeof entry : sizeof(struct process);
    }
    return SUCCESS;
}

#ifdef WIDE_PROCESSES
#define WIDE 1
#else
#define WIDE 0
#endif
#define LISTED(name)                                                                                            \
    int name##_v2(Device d, u32 *n, void *out) { return list(d, #name, n, out, 0); }                            \
    NEW(name)
#if DRIVER >= 510
#define NEW(name) int name##_v3(Device d, u32 *n, void *out) { return list(d, #name, n, out, WIDE); }
#else
#define NEW(name)
#endif
LISTED(nvmlDeviceGetComputeRunningProcesses)
LISTED(nvmlDeviceGetGraphicsRunningProcesses)
#if DRIVER >= 470
LISTED(nvmlDeviceGetMPSComputeRunningProcesses)
#endif
#if DRIVER >= 535
int nvmlDeviceGetConfComputeMemSizeInfo(Device d, void *info) { return NOT_SUPPORTED; }
#ifndef WIDE_PROCESSES
int nvmlDeviceGetRunningProcessDetailList(Device d, void *list) { return NOT_SUPPORTED; }
#endif
#endif

/* Events */
#ifndef NO_EVENTS
int nvmlEventSetCreate(void **set) { static int made; *set = &made; return SUCCESS; }
int nvmlEventSetFree(void *set) { return SUCCESS; }
U64(nvmlDeviceGetSupportedEventTypes)
int nvmlDeviceRegisterEvents(Device d, u64 types, void *set) { return code_of(find(d, "nvmlDeviceRegisterEvents")); }
int nvmlEventSetWait_v2(void *set, void *data, u32 ms) { return TIMEOUT; }
#endif
