/* A libnvidia-ml.so.1 of a healthy host, until a control file says otherwise: see stand_in.py for its lines.
 *
 * NVML_STAND_IN names the file. It is read again whenever it changes, also by calls that hang: they return once no line
 * makes them hang. NVML_STAND_IN with ".journal" behind it records initializations, and calls that the real library
 * does not forgive. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { int gpu, session; } *Device;

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9, TIMEOUT = 10 };
enum { GPU_IS_LOST = 15, RESET_REQUIRED = 16, VERSION_MISMATCH = 25 };
enum { MOST_RULES = 4096, MOST_VALUES = 64, MOST_GPUS = 64, SESSIONS = 64, EVERY = -1, HOST = -2 };

/* The control file */

static struct rule {
    int gpu, many;
    char what[16], function[64];
    long double values[MOST_VALUES];
} rules[MOST_RULES];
static int known;
static struct timespec read_at;
static ino_t read_inode;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static struct { int gpu, session; } handles[SESSIONS][MOST_GPUS];
static int present[MOST_GPUS], count, session, users, in_flight, lost[MOST_GPUS];

static int all_of(const char *what, int gpu)
{
    for (int i = 0; i < known; i++)
        if (!strcmp(rules[i].what, what) && (rules[i].gpu == gpu || (rules[i].gpu == EVERY && gpu != HOST)))
            return 1;
    return 0;
}

static void parse(char *row)
{
    struct rule *rule = &rules[known];
    char first[16], second[16];
    int used = 0, name = 0;
    memset(rule, 0, sizeof *rule);
    if (sscanf(row, "%15s %n", first, &used) < 1)
        return;
    rule->gpu = HOST;
    if (!strcmp(first, "gpu")) {
        if (sscanf(row + used, "%15s %n", second, &name) < 1)
            return;
        rule->gpu = *second == '*' ? EVERY : atoi(second);
        used += name;
    } else if (strcmp(first, "host"))
        used = 0;
    if (sscanf(row + used, "%15s %n", rule->what, &name) < 1)
        return;
    used += name;
    if (strspn(row + used, "n*") && sscanf(row + used, "%63s %n", rule->function, &name) == 1)
        used += name;
    for (char *rest = row + used, *end; rule->many < MOST_VALUES; rest = end) {
        rule->values[rule->many] = strtold(rest, &end);
        if (end == rest)
            break;
        rule->many++;
    }
    known++;
}

static void read_rules(void)
{
    char row[2048];
    struct stat now;
    const char *path = getenv("NVML_STAND_IN");
    if (!path || stat(path, &now))
        return;
    if (now.st_ino == read_inode && !memcmp(&now.st_mtim, &read_at, sizeof read_at))
        return;
    pthread_rwlock_wrlock(&lock);
    FILE *file = fopen(path, "r");
    for (known = 0; file && known < MOST_RULES && fgets(row, sizeof row, file);)
        parse(row);
    if (file)
        fclose(file);
    read_at = now.st_mtim;
    read_inode = now.st_ino;
    /* What is lost stays lost until the library is initialized anew. */
    for (int gpu = 0; users && gpu < MOST_GPUS; gpu++)
        lost[gpu] |= all_of("lost", gpu) || all_of("removed", gpu);
    pthread_rwlock_unlock(&lock);
}

static int names(const struct rule *rule, const char *function)
{
    size_t length = strlen(rule->function);
    if (!length || *rule->function == '*')
        return 1;
    return !strncmp(rule->function, function, length) && (!function[length] || !strncmp(function + length, "_v", 2));
}

static int find(struct rule *found, const char *what, int gpu, const char *function)
{
    int hit = 0;
    read_rules();
    pthread_rwlock_rdlock(&lock);
    for (int i = known - 1; i >= 0 && !hit; i--) {
        const struct rule *rule = &rules[i];
        hit = (rule->gpu == gpu || (rule->gpu == EVERY && gpu != HOST)) && !strcmp(rule->what, what) && names(rule, function);
        if (hit)
            *found = *rule;
    }
    pthread_rwlock_unlock(&lock);
    return hit;
}

static void journal(const char *what, const char *function)
{
    char path[512], row[128];
    snprintf(path, sizeof path, "%s.journal", getenv("NVML_STAND_IN"));
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    int length = snprintf(row, sizeof row, "%d %s %s\n", getpid(), what, function);
    if (file >= 0 && write(file, row, length) < 0)
        perror(path);
    if (file >= 0)
        close(file);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void rest(double for_seconds)
{
    struct timespec time = { (time_t)for_seconds, (long)((for_seconds - (time_t)for_seconds) * 1e9) };
    nanosleep(&time, NULL);
}

/* What happens to a call before it is answered */

static int delayed(int gpu, const char *function)
{
    struct rule rule;
    while (find(&rule, "hang", gpu, function))
        rest(0.02);
    if (find(&rule, "slow", gpu, function))
        rest((double)rule.values[0]);
    if (find(&rule, "crash", gpu, function))
        raise((int)rule.values[0]);
    if (find(&rule, "unloaded", HOST, function))
        return NOT_LOADED;
    return find(&rule, "error", gpu, function) ? (int)rule.values[0] : SUCCESS;
}

static int enter(struct rule *answer, Device device, const char *function)
{
    int gpu = HOST, code;
    answer->many = 0;
    if (!users) {
        journal("misuse:uninitialized", function);
        return UNINITIALIZED;
    }
    if (device) {
        gpu = device->gpu;
        if (device->session != session) {
            journal("misuse:dead-handle", function);
            return INVALID_ARGUMENT;
        }
    }
    __atomic_add_fetch(&in_flight, 1, __ATOMIC_SEQ_CST);
    code = delayed(gpu, function);
    __atomic_sub_fetch(&in_flight, 1, __ATOMIC_SEQ_CST);
    if (code)
        return code;
    if (gpu != HOST && (lost[gpu] || find(answer, "lost", gpu, function)))
        return GPU_IS_LOST;
    if (gpu != HOST && find(answer, "reset", gpu, function))
        return RESET_REQUIRED;
    if (!find(answer, "value", gpu, function))
        answer->many = 0;
    return SUCCESS;
}

static u64 number(const struct rule *answer, int n, long double otherwise)
{
    long double value = n < answer->many ? answer->values[n] : otherwise;
    return value < 0 ? (u64)(long long)value : (u64)value;
}

#define CALL(device, name)                        \
    struct rule a;                                \
    int code = enter(&a, (device), name);         \
    if (code)                                     \
        return code;
#define N(n, otherwise) number(&a, n, otherwise)
#define U32(name, x) int name(Device d, u32 *v) { CALL(d, #name) *v = (u32)N(0, x); return SUCCESS; }
#define U64(name, x) int name(Device d, u64 *v) { CALL(d, #name) *v = N(0, x); return SUCCESS; }
#define PAIR(name, x, y) int name(Device d, u32 *v, u32 *w) { CALL(d, #name) *v = (u32)N(0, x); *w = (u32)N(1, y); return SUCCESS; }
#define PICK(name, x) int name(Device d, u32 k, u32 *v) { CALL(d, #name) *v = (u32)N(0, x); return SUCCESS; }
#define TEXT(name, ...) \
    int name(Device d, char *t, u32 n) { CALL(d, #name) snprintf(t, n, __VA_ARGS__); return SUCCESS; }
#define SYSTEM(name, x) int name(char *t, u32 n) { CALL(NULL, #name) snprintf(t, n, x); return SUCCESS; }

/* The library */

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

static void begin(void)
{
    struct rule rule;
    int wanted = find(&rule, "gpus", HOST, "") ? (int)rule.values[0] : 8;
    session++;
    count = 0;
    for (int gpu = 0; gpu < wanted && gpu < MOST_GPUS; gpu++) {
        lost[gpu] = find(&rule, "lost", gpu, "");
        if (find(&rule, "removed", gpu, ""))
            continue;
        handles[session % SESSIONS][gpu].gpu = gpu;
        handles[session % SESSIONS][gpu].session = session;
        present[count++] = gpu;
    }
}

int nvmlInitWithFlags(u32 flags)
{
    struct rule rule;
    int code;
    journal("init", "begins");
    if (find(&rule, "init_seconds", HOST, ""))
        rest((double)rule.values[0]);
    code = delayed(HOST, "nvmlInit");
    if (!code) {
        pthread_mutex_lock(&starting);
        if (!users)
            begin();
        users++;
        pthread_mutex_unlock(&starting);
    }
    journal("init", code ? "failed" : "done");
    return code;
}

int nvmlShutdown(void)
{
    if (!users) {
        journal("misuse:uninitialized", "nvmlShutdown");
        return UNINITIALIZED;
    }
    if (users == 1 && __atomic_load_n(&in_flight, __ATOMIC_SEQ_CST))
        journal("misuse:in-flight", "nvmlShutdown");
    int code = delayed(HOST, "nvmlShutdown");
    pthread_mutex_lock(&starting);
    users--;
    pthread_mutex_unlock(&starting);
    journal("shutdown", "done");
    return code;
}

const char *nvmlErrorString(int code) { return "an error"; }
SYSTEM(nvmlSystemGetDriverVersion, "580.82.07")
SYSTEM(nvmlSystemGetNVMLVersion, "13.580.82.07")
int nvmlSystemGetCudaDriverVersion_v2(int *v) { CALL(NULL, "nvmlSystemGetCudaDriverVersion_v2") *v = (int)N(0, 13000); return SUCCESS; }
int nvmlDeviceGetCount_v2(u32 *v) { CALL(NULL, "nvmlDeviceGetCount_v2") *v = (u32)N(0, count); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(u32 index, Device *device)
{
    if (index >= (u32)count)
        return INVALID_ARGUMENT;
    *device = (Device)&handles[session % SESSIONS][present[index]];
    CALL(*device, "nvmlDeviceGetHandleByIndex_v2")
    return SUCCESS;
}

/* Identity */

struct pci { char legacy[16]; u32 domain, bus, device, pci_device, pci_subsystem; char id[32]; };

int nvmlDeviceGetPciInfo_v3(Device d, struct pci *pci)
{
    CALL(d, "nvmlDeviceGetPciInfo_v3")
    *pci = (struct pci){ .bus = 0x10 + d->gpu, .pci_device = 0x233010DE };
    snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus & 0xFF);
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus & 0xFF);
    return SUCCESS;
}

TEXT(nvmlDeviceGetUUID, "GPU-%08x-0000-0000-0000-000000000000", (u32)d->gpu)
TEXT(nvmlDeviceGetName, "NVIDIA H100 80GB HBM3")
TEXT(nvmlDeviceGetSerial, "16500%04d", d->gpu)
TEXT(nvmlDeviceGetVbiosVersion, "96.00.89.00.01")
TEXT(nvmlDeviceGetBoardPartNumber, "699-2G520-0200-000")
U32(nvmlDeviceGetArchitecture, 9)
PAIR(nvmlDeviceGetCudaComputeCapability, 9, 0)
U32(nvmlDeviceGetBusType, 2)

/* Work, power, heat */

struct utilization { u32 gpu, memory; };
int nvmlDeviceGetUtilizationRates(Device d, struct utilization *u)
{
    CALL(d, "nvmlDeviceGetUtilizationRates")
    u->gpu = (u32)N(0, 80);
    u->memory = (u32)N(1, 30);
    return SUCCESS;
}

PAIR(nvmlDeviceGetEncoderUtilization, 0, 100000)
PAIR(nvmlDeviceGetDecoderUtilization, 0, 100000)
U32(nvmlDeviceGetPerformanceState, 0)
U32(nvmlDeviceGetPowerUsage, 450000)
U32(nvmlDeviceGetEnforcedPowerLimit, 700000)
U32(nvmlDeviceGetPowerManagementDefaultLimit, 700000)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, 200000, 700000)
U64(nvmlDeviceGetTotalEnergyConsumption, 450000 * seconds())
PICK(nvmlDeviceGetClockInfo, k == 2 ? 2619 : 1755)
PICK(nvmlDeviceGetMaxClockInfo, k == 2 ? 2619 : 1980)
PICK(nvmlDeviceGetTemperature, 52)
PICK(nvmlDeviceGetTemperatureThreshold, 90)
U64(nvmlDeviceGetCurrentClocksEventReasons, 0)
U64(nvmlDeviceGetSupportedClocksEventReasons, 0x1FF)
U32(nvmlDeviceGetNumFans, 0)

/* Memory */

struct memory_v2 { u32 version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(Device d, struct memory_v2 *m)
{
    CALL(d, "nvmlDeviceGetMemoryInfo_v2")
    if (m->version != (sizeof *m | 2 << 24))
        return VERSION_MISMATCH;
    *m = (struct memory_v2){ m->version, N(0, 85520809984), N(1, 520809984), N(2, 25e9), N(3, 60e9) };
    return SUCCESS;
}

/* Health and links */

PAIR(nvmlDeviceGetEccMode, 1, 1)
U32(nvmlDeviceGetPersistenceMode, 1)
U32(nvmlDeviceGetComputeMode, 0)
PAIR(nvmlDeviceGetMigMode, 0, 0)
U32(nvmlDeviceGetPcieReplayCounter, 0)
U32(nvmlDeviceGetCurrPcieLinkGeneration, 5)
U32(nvmlDeviceGetCurrPcieLinkWidth, 16)
U32(nvmlDeviceGetMaxPcieLinkGeneration, 5)
U32(nvmlDeviceGetMaxPcieLinkWidth, 16)
U32(nvmlDeviceGetGpuMaxPcieLinkGeneration, 5)
PICK(nvmlDeviceGetPcieThroughput, 100000)

int nvmlDeviceGetTotalEccErrors(Device d, u32 kind, u32 counter, u64 *errors)
{
    CALL(d, "nvmlDeviceGetTotalEccErrors")
    *errors = N(0, 0);
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(Device d, u32 *correctable, u32 *uncorrectable, u32 *pending, u32 *failed)
{
    CALL(d, "nvmlDeviceGetRemappedRows")
    *correctable = (u32)N(0, 0);
    *uncorrectable = (u32)N(1, 0);
    *pending = (u32)N(2, 0);
    *failed = (u32)N(3, 0);
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(Device d, Device peer, int capability, u32 *status)
{
    CALL(d, "nvmlDeviceGetP2PStatus")
    *status = (u32)N(0, 0);
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(Device d, Device peer, u32 *level)
{
    CALL(d, "nvmlDeviceGetTopologyCommonAncestor")
    *level = (u32)N(0, 50);
    return SUCCESS;
}

/* Fields: none */

struct field { u32 id, scope; long long at, latency; u32 type; int code; union { double d; u64 u; } value; };

int nvmlDeviceGetFieldValues(Device d, int many, struct field *fields)
{
    CALL(d, "nvmlDeviceGetFieldValues")
    for (int i = 0; i < many; i++)
        fields[i].code = NOT_SUPPORTED;
    return SUCCESS;
}

/* Processes: `gpu 3 pids 41 42 43` */

struct process { u32 pid; u64 used; u32 gi, ci; };

static int list(Device d, const char *function, u32 *many, struct process *out)
{
    CALL(d, function)
    struct rule pids = { .many = 0 };
    u32 room = *many;
    *many = find(&pids, "pids", d->gpu, "") ? (u32)pids.many : 0;
    *many = (u32)N(0, *many);
    if (*many > room)
        return INSUFFICIENT_SIZE;
    for (u32 i = 0; i < *many; i++)
        out[i] = (struct process){ i < (u32)pids.many ? (u32)pids.values[i] : i, 1 << 30, ~0u, ~0u };
    return SUCCESS;
}

static int no_list(Device d, const char *function, u32 *many)
{
    CALL(d, function)
    *many = (u32)N(0, 0);
    return *many ? INSUFFICIENT_SIZE : SUCCESS;
}

#define LISTED(name) int name(Device d, u32 *many, struct process *out) { return list(d, #name, many, out); }
#define EMPTY(name) int name(Device d, u32 *many, struct process *out) { return no_list(d, #name, many); }
LISTED(nvmlDeviceGetComputeRunningProcesses_v3)
EMPTY(nvmlDeviceGetGraphicsRunningProcesses_v3)
EMPTY(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* Xids: `gpu 3 xid 1 79` is the first event of this host; later ones have higher numbers */

struct event { Device device; u64 type, data; u32 gi, ci; };
static int heard;

static int next_xid(int after, struct rule *next)
{
    int best = 0;
    read_rules();
    pthread_rwlock_rdlock(&lock);
    for (int i = 0; i < known; i++) {
        int at = (int)rules[i].values[0];
        if (!strcmp(rules[i].what, "xid") && at > after && (!best || at < best)) {
            best = at;
            *next = rules[i];
        }
    }
    pthread_rwlock_unlock(&lock);
    return best;
}

int nvmlEventSetCreate(void **set)
{
    CALL(NULL, "nvmlEventSetCreate")
    struct rule rule;
    for (int next; (next = next_xid(heard, &rule)); heard = next)
        ;
    *set = &heard;
    return SUCCESS;
}

int nvmlEventSetFree(void *set) { CALL(NULL, "nvmlEventSetFree") return SUCCESS; }
U64(nvmlDeviceGetSupportedEventTypes, 0x1F)
int nvmlDeviceRegisterEvents(Device d, u64 types, void *set) { CALL(d, "nvmlDeviceRegisterEvents") return SUCCESS; }

int nvmlEventSetWait_v2(void *set, struct event *event, u32 milliseconds)
{
    CALL(NULL, "nvmlEventSetWait_v2")
    struct rule rule;
    int next = next_xid(heard, &rule);
    if (!next)
        return TIMEOUT;
    heard = next;
    *event = (struct event){ (Device)&handles[session % SESSIONS][rule.gpu & (MOST_GPUS - 1)], 8, number(&rule, 1, 0), ~0u, ~0u };
    return SUCCESS;
}
